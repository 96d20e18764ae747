// SPDX-FileCopyrightText: The KoZeRO authors
// SPDX-License-Identifier: Apache-2.0
// shared_arrays.hpp: arrays in shared memory, and where a peer's counterpart of an array lies in this process.
//   own = arrays.add(bytes)      collective: every rank has such an array then, each of an extent of its own
//   at(r, place_of(p))           in this process, rank r's bytes at the place that p has in this rank's array
// Each array is a file of a folder in memory whose pages are taken at once: where the folder is overbooked add() finds
// out, instead of a bus error at the first touch. The file's name is removed as soon as all ranks have mapped it, so
// that no process leaves it behind. (MPI's shared windows do neither.)
#pragma once
#include <cstdint>
#include <string>
#include <vector>

#include <kozero/dist/communicator.hpp>

namespace kozero::dist {

class SharedArrays {
 public:
  /// A byte of an array: the same numbers name it on every rank.
  struct Place {
    std::int64_t array = -1;  ///< -1: in none
    std::int64_t offset = 0;
  };

  /// `comm`, whose ranks share a node, carries control traffic and outlives this. `folder`: a tmpfs.
  SharedArrays(Communicator& comm, std::string folder) : comm_(comm), folder_(std::move(folder)) {}
  /// Unmaps: peers that still read have mappings of their own.
  ~SharedArrays();
  SharedArrays(const SharedArrays&) = delete;
  SharedArrays& operator=(const SharedArrays&) = delete;

  /// Collective. Zeros, aligned to a page; a place behind its last byte belongs to it too. nullptr on all ranks where
  /// one of them found no room.
  void* add(std::int64_t bytes);

  [[nodiscard]] Place place_of(const void* pointer) const;
  [[nodiscard]] char* at(int rank, Place place) const;
  /// Of this rank's arrays.
  [[nodiscard]] std::int64_t bytes() const;

 private:
  struct Mapping {
    char* begin = nullptr;
    std::int64_t bytes = 0;
  };
  struct Array {
    std::int64_t bytes = 0;  // of this rank's
    std::vector<Mapping> of_rank;
  };

  [[nodiscard]] bool map_all(const std::vector<std::string>& files, const std::vector<double>& rooms,
                             Array& array) const;
  static void unmap(Array& array);

  Communicator& comm_;
  std::string folder_;
  std::vector<Array> arrays_;
};

}  // namespace kozero::dist
