// SPDX-FileCopyrightText: The KoZeRO authors
// SPDX-License-Identifier: Apache-2.0
// host_threads.cpp: sums and copies in blocks that stay in a core's nearest cache.
#include <algorithm>
#include <cstring>

#include <kozero/core/views.hpp>

#include "host_threads.hpp"

namespace kozero::dist {
namespace {

constexpr std::int64_t kSumBlock = 1024;        // elements
constexpr std::int64_t kCopyBlock = 64 * 1024;  // bytes: below what memcpy streams past the caches

template <class Body>
void for_each_block(const char* label, std::int64_t extent, std::int64_t block, const Body& body) {
  const std::int64_t num_blocks = (extent + block - 1) / block;
  if (num_blocks == 1) return body(0, extent);
  Kokkos::parallel_for(label, Kokkos::RangePolicy<Host, Kokkos::IndexType<std::int64_t>>(0, num_blocks),
                       [=](const std::int64_t b) { body(b * block, std::min(block, extent - b * block)); });
}

}  // namespace

void sum_in_order(const float* const* sources, int num_sources, std::int64_t extent, float* out) {
  for_each_block("kozero::dist::sum_in_order", extent, kSumBlock, [=](std::int64_t first, std::int64_t count) {
    float sum[kSumBlock];
    std::memcpy(sum, sources[0] + first, static_cast<std::size_t>(count) * sizeof(float));
    for (int s = 1; s < num_sources; ++s) {
      const float* source = sources[s] + first;
      for (std::int64_t i = 0; i < count; ++i) sum[i] += source[i];
    }
    std::memcpy(out + first, sum, static_cast<std::size_t>(count) * sizeof(float));
  });
}

void copy_bytes(void* to, const void* from, std::int64_t bytes) {
  if (to == from) return;
  for_each_block("kozero::dist::copy_bytes", bytes, kCopyBlock, [=](std::int64_t first, std::int64_t count) {
    std::memcpy(static_cast<char*>(to) + first, static_cast<const char*>(from) + first,
                static_cast<std::size_t>(count));
  });
}

}  // namespace kozero::dist
