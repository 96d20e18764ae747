// SPDX-FileCopyrightText: The KoZeRO authors
// SPDX-License-Identifier: Apache-2.0
// disk_check.hpp: notices that state on disk (zero.offload_*) is not what the last update wrote: the disk damaged it,
// or somebody wrote to its file.
//   for each part of an update:  compare(part); update it; record(part)
// compare and record read a part while it is in memory: two more passes over it.
#pragma once
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include <kozero/core/disk_memory.hpp>
#include <kozero/core/error.hpp>
#include <kozero/core/views.hpp>
#include "kernels/launch/reduce.hpp"

namespace kozero::train {

class DiskCheck {
 public:
  using Array = Vector<const std::uint32_t>;

  /// The arrays of each part. Those in memory are left out.
  explicit DiskCheck(std::vector<std::vector<Array>> parts) {
    for (auto& part : parts) {
      std::erase_if(part, [](const Array& array) { return name_on_disk(array.data()).empty(); });
      parts_.push_back({std::move(part), {}});
    }
  }

  /// Throws Error(input) naming the array and the folder of its file.
  void compare(std::size_t part) const {
    if (const std::string changed = changed_in(parts_[part]); !changed.empty()) throw Error(Failure::input, changed);
  }
  void record(std::size_t part) { parts_[part].hashes = hashes_of(parts_[part]); }
  /// What compare() would throw for the first part that was changed; "" if none was. Reads all parts.
  [[nodiscard]] std::string first_changed() const {
    for (const Part& part : parts_) {
      if (std::string changed = changed_in(part); !changed.empty()) return changed;
      for (const Array& array : part.arrays) release_pages(array);
    }
    return "";
  }

 private:
  struct Part {
    std::vector<Array> arrays;
    std::vector<std::uint64_t> hashes;  // empty before the first record()
  };

  static std::vector<std::uint64_t> hashes_of(const Part& part) {
    std::vector<std::uint64_t> hashes;
    for (const Array& array : part.arrays) hashes.push_back(kernels::bit_hash(Device(), array));
    return hashes;
  }

  static std::string changed_in(const Part& part) {
    if (part.hashes.empty()) return "";
    const auto now = hashes_of(part);
    for (std::size_t i = 0; i < now.size(); ++i) {
      if (now[i] == part.hashes[i]) continue;
      return name_on_disk(part.arrays[i].data()) +
             ": its file on disk (zero.offload_*) was changed or damaged after the last update wrote it; resume from "
             "the newest checkpoint, with another zero.offload_dir if the disk fails";
    }
    return "";
  }

  std::vector<Part> parts_;
};

}  // namespace kozero::train
