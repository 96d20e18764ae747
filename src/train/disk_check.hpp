// SPDX-FileCopyrightText: The KoZeRO authors
// SPDX-License-Identifier: Apache-2.0
// disk_check.hpp: notices that state on disk (zero.offload_*) is not what the run wrote: the disk damaged it, or
// somebody wrote to its file.
//   before the first step:             record_all()
//   for each part of an update:        compare(part); update it; record(part)
//   for a checkpoint or weights file:  begin(); read(values) behind each write; require_unchanged()
// compare, record and read use a part while it is in memory: they cost passes over memory and no reads of the disk.
// Only resting arrays, which no update changes, are read whole by require_unchanged(). The sums of read() are of the
// pages that went into the file, so a file that require_unchanged() passes has the values that the last record() saw.
#pragma once
#include <cstdint>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include <kozero/core/views.hpp>
#include "io/checkpoint/tensor_groups.hpp"

namespace kozero::train {

/// The error text for an array of a DiskMemory that is not what the run wrote.
std::string text_of_change(const Vector<const std::uint32_t>& words);

class DiskCheck final : public io::ReadWatch {
 public:
  using Array = Vector<const std::uint32_t>;

  /// The arrays of each part of an update, and `resting` ones, which no update changes. Arrays in memory are left out.
  DiskCheck(const std::vector<std::vector<Array>>& parts, const std::vector<Array>& resting);

  /// Takes the present bits as right. Reads all arrays.
  void record_all();
  void record(std::size_t part);
  /// Throws Error(input) naming the array and the folder of its file.
  void compare(std::size_t part) const;
  /// What compare() would throw for the first array that was changed; "" if none was. Reads all arrays.
  [[nodiscard]] std::string first_changed() const;

  void begin() override;
  void read(std::span<const float> values) override;
  /// Throws as compare() if an array of which elements were read, or a resting one, was changed.
  void require_unchanged() override;

 private:
  struct Watched {
    Array words;
    bool rests = false;
    std::uint64_t hash = 0;  // when it was last recorded
    std::uint64_t sum = 0;   // the hash of the elements read since begin()
    std::vector<std::pair<std::int64_t, std::int64_t>> elements_read = {};  // [first, last)
  };

  void watch(const Array& array, bool rests);
  /// Completes the sum by the elements that were not read: pads, and elements that another rank writes.
  static void add_unread(Watched& array);

  std::vector<Watched> arrays_;                  // by address
  std::vector<std::vector<std::size_t>> parts_;  // indices of arrays_
};

}  // namespace kozero::train
