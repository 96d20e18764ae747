// SPDX-FileCopyrightText: The KoZeRO authors
// SPDX-License-Identifier: Apache-2.0
// chunks.hpp: shards cut into chunks that fit a buffer, and sums and copies of host memory on all threads of a rank.
//   chunk k of rank r: elements [begin(r) + k * extent, ...), size(r, k) of them, 0 past the end of its shard
#pragma once
#include <algorithm>
#include <cstdint>

#include <kozero/core/parameter_table.hpp>

namespace kozero::distributed {

/// All shards are cut into chunks of one extent; the k-th chunks of all ranks are exchanged together.
class Chunks {
 public:
  /// `extent`: elements of a chunk, > 0.
  Chunks(const Partition& partition, std::int64_t extent) : partition_(partition), extent_(extent) {}

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

/// Elements of a chunk if `num_parts` chunks share `bytes`: a multiple of kAlignment, at least kAlignment.
constexpr std::int64_t chunk_extent(std::int64_t bytes, int num_parts, std::int64_t element_size) {
  const std::int64_t elements = bytes / std::max(num_parts, 1) / element_size;
  return std::max(elements / kAlignment, std::int64_t{1}) * kAlignment;
}

/// out[i] = ((source_0[i] + source_1[i]) + source_2[i]) + ...  for i < extent. `out` may be one of the sources.
void sum_in_order(const float* const* sources, std::int64_t num_sources, std::int64_t extent, float* out);

/// Copies `bytes` bytes between disjoint ranges; does nothing if `to` == `from`.
void copy_bytes(void* to, const void* from, std::int64_t bytes);

}  // namespace kozero::distributed
