// SPDX-FileCopyrightText: The KoZeRO authors
// SPDX-License-Identifier: Apache-2.0
// shared_arrays.hpp: arrays in shared memory, and where a peer's counterpart of an array lies in this process.
//   own = arrays.add(bytes)      collective: every rank has such an array then, each of an extent of its own
//   at(r, place_of(p))           in this process, rank r's bytes at the place that p has in this rank's array
// Each array is an MPI window of its own, whose pages exist once they are touched.
#pragma once
#include <mpi.h>

#include <cstdint>
#include <vector>

namespace kozero::dist {

class SharedArrays {
 public:
  /// A byte of an array: the same numbers name it on every rank.
  struct Place {
    std::int64_t array = -1;  ///< -1: in none
    std::int64_t offset = 0;
  };

  /// `comm` outlives this; its ranks share a node.
  explicit SharedArrays(MPI_Comm comm) : comm_(comm) {}

  /// Collective. Not yet touched, on a page's border; a place behind its last byte belongs to it too.
  void* add(std::int64_t bytes);
  /// Collective: unmaps all. Without it they stay until the process ends.
  void remove();

  [[nodiscard]] Place place_of(const void* pointer) const;
  [[nodiscard]] char* at(int rank, Place place) const;
  /// Of this rank's arrays.
  [[nodiscard]] std::int64_t bytes() const;

  /// What `add` takes of the node's shared memory.
  static std::int64_t room_for(std::int64_t bytes);

 private:
  struct Array {
    MPI_Win window = MPI_WIN_NULL;
    std::int64_t bytes = 0;  // of this rank's
    char* own = nullptr;
    std::vector<char*> begins;  // by rank, as mapped here
  };

  MPI_Comm comm_;
  std::vector<Array> arrays_;
};

}  // namespace kozero::dist
