// SPDX-FileCopyrightText: The KoZeRO authors
// SPDX-License-Identifier: Apache-2.0
// partition.hpp: how n ranks cut one flat extent into contiguous slices.
//   slice = ceil(ceil(extent / n) / 64) * 64     rank r owns [min(r*slice, extent), min((r+1)*slice, extent))
// The last slices may be short or empty (unit_multiple() avoids it). Every element has one owner in any configuration.
#pragma once
#include <algorithm>
#include <cstdint>

#include <kozero/core/parameter_table.hpp>

namespace kozero {

class Partition {
 public:
  Partition(std::int64_t extent, int num_ranks)
      : extent_(extent), num_ranks_(num_ranks), slice_(aligned((extent + num_ranks - 1) / num_ranks)) {}

  [[nodiscard]] std::int64_t extent() const { return extent_; }
  [[nodiscard]] int num_ranks() const { return num_ranks_; }
  [[nodiscard]] std::int64_t begin(int rank) const { return std::min(rank * slice_, extent_); }
  [[nodiscard]] std::int64_t end(int rank) const { return std::min((rank + 1) * slice_, extent_); }
  [[nodiscard]] std::int64_t size(int rank) const { return end(rank) - begin(rank); }
  /// The largest slice of any rank: rank 0's.
  [[nodiscard]] std::int64_t largest() const { return size(0); }

 private:
  std::int64_t extent_;
  int num_ranks_;
  std::int64_t slice_;
};

}  // namespace kozero
