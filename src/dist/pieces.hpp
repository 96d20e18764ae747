// SPDX-FileCopyrightText: The KoZeRO authors
// SPDX-License-Identifier: Apache-2.0
// pieces.hpp: how slices travel through buffers of bounded size: all slices are cut into pieces of one extent, and the
// k-th pieces travel together.
//   piece k of rank r: elements [begin(r) + k * extent, ...), `size(r, k)` of them, 0 past the end of its slice
#pragma once
#include <algorithm>
#include <cstdint>

#include <kozero/core/partition.hpp>

namespace kozero::dist {

class Pieces {
 public:
  /// `extent`: elements of a piece, > 0.
  Pieces(const Partition& partition, std::int64_t extent) : partition_(partition), extent_(extent) {}

  [[nodiscard]] std::int64_t extent() const { return extent_; }
  [[nodiscard]] std::int64_t count() const { return (partition_.largest() + extent_ - 1) / extent_; }
  [[nodiscard]] std::int64_t begin(int rank, std::int64_t k) const { return partition_.begin(rank) + k * extent_; }
  [[nodiscard]] std::int64_t size(int rank, std::int64_t k) const {
    return std::clamp(partition_.size(rank) - k * extent_, std::int64_t{0}, extent_);
  }

 private:
  Partition partition_;
  std::int64_t extent_;
};

/// The elements of a piece where `num_parts` of them share `bytes`: a multiple of kAlignment, at least one of it.
constexpr std::int64_t piece_extent(std::int64_t bytes, int num_parts, std::int64_t element_size) {
  const std::int64_t elements = bytes / std::max(num_parts, 1) / element_size;
  return std::max(elements / kAlignment, std::int64_t{1}) * kAlignment;
}

}  // namespace kozero::dist
