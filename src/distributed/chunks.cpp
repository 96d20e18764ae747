// SPDX-FileCopyrightText: The KoZeRO authors
// SPDX-License-Identifier: Apache-2.0
// chunks.cpp: sums and copies in blocks distributed over the threads, with stores that bypass the caches.
#include <algorithm>
#include <array>
#include <cstring>
#include <utility>

#include <kozero/core/host.hpp>
#include <kozero/core/views.hpp>
#include "src/distributed/chunks.hpp"

namespace kozero::distributed {
namespace {

constexpr std::int64_t kSumBlock = 4 * 1024;    // elements
constexpr std::int64_t kCopyBlock = 64 * 1024;  // bytes
constexpr std::int64_t kLine = kCacheLine / static_cast<std::int64_t>(sizeof(float));

/// A cache line of floats in registers. For an array of floats, the compiler would use four quarter lines.
using Line = float __attribute__((vector_size(kCacheLine)));

template <class Body>
void for_each_block(const char* label, std::int64_t extent, std::int64_t block, const Body& body) {
  const std::int64_t num_blocks = (extent + block - 1) / block;
  if (num_blocks == 1) return body(0, extent);
  Kokkos::parallel_for(label, Kokkos::RangePolicy<Host, Kokkos::IndexType<std::int64_t>>(0, num_blocks),
                       [=](const std::int64_t b) { body(b * block, std::min(block, extent - b * block)); });
}

/// Sums [i, end) of `1 + sizeof...(Later)` sources. Whole lines are added in registers and bypass the caches.
template <int... Later>
void sum_block(const float* const* sources, std::int64_t i, std::int64_t end, float* out,
               std::integer_sequence<int, Later...> /*later*/) {
  const std::array<const float*, 1 + sizeof...(Later)> from = {sources[0], sources[1 + Later]...};
  for (; can_stream_to(out + i) && i + kLine <= end; i += kLine) {
    Line sum;
    Line next;
    std::memcpy(&sum, from[0] + i, sizeof(Line));
    ((std::memcpy(&next, from[1 + Later] + i, sizeof(Line)), sum += next), ...);
    stream_line(out + i, &sum);
  }
  end_stream();
  for (; i < end; ++i) {
    float sum = from[0][i];
    ((sum += from[1 + Later][i]), ...);
    out[i] = sum;
  }
}

/// Sums any number of sources: partial sums stay in the nearest cache until the last source is added.
void sum_block(const float* const* sources, std::int64_t num_sources, std::int64_t first, std::int64_t end,
               float* out) {
  alignas(kCacheLine) float sum[kSumBlock];
  const std::int64_t count = end - first;
  std::memcpy(sum, sources[0] + first, static_cast<std::size_t>(count) * sizeof(float));
  for (std::int64_t s = 1; s < num_sources; ++s) {
    const float* source = sources[s] + first;
    for (std::int64_t i = 0; i < count; ++i) sum[i] += source[i];
  }
  stream_copy(out + first, sum, count * static_cast<std::int64_t>(sizeof(float)));
}

}  // namespace

void sum_in_order(const float* const* sources, std::int64_t num_sources, std::int64_t extent, float* out) {
  for_each_block("kozero::distributed::sum_in_order", extent, kSumBlock, [=](std::int64_t first, std::int64_t count) {
    const std::int64_t end = first + count;
    switch (num_sources) {
      case 1:
        return sources[0] == out ? void() : stream_copy(out + first, sources[0] + first, count * 4);
      case 2:
        return sum_block(sources, first, end, out, std::make_integer_sequence<int, 1>());
      case 3:
        return sum_block(sources, first, end, out, std::make_integer_sequence<int, 2>());
      case 4:
        return sum_block(sources, first, end, out, std::make_integer_sequence<int, 3>());
      case 5:
        return sum_block(sources, first, end, out, std::make_integer_sequence<int, 4>());
      default:
        return sum_block(sources, num_sources, first, end, out);
    }
  });
}

void copy_bytes(void* to, const void* from, std::int64_t bytes) {
  if (to == from) return;
  for_each_block("kozero::distributed::copy_bytes", bytes, kCopyBlock, [=](std::int64_t first, std::int64_t count) {
    stream_copy(static_cast<char*>(to) + first, static_cast<const char*>(from) + first, count);
  });
}

}  // namespace kozero::distributed
