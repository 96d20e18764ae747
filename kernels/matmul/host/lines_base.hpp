// SPDX-FileCopyrightText: The KoZeRO authors
// SPDX-License-Identifier: Apache-2.0
// lines_base.hpp: lines.hpp in the compiler's vectors of 16 bytes, for the processor that all sources are compiled for:
// NEON on Arm, SSE2 on x86. x86 without FMA rounds a product before its sum.
#pragma once
#include <algorithm>
#include <bit>
#include <cstdint>
#include <cstring>
#include <utility>

#include <kozero/core/precision.hpp>
#include "kernels/matmul/host/tile_product.hpp"

#if defined(__ARM_NEON)
#include <arm_neon.h>
#endif

namespace kozero::kernels::KOZERO_LINES {

using Floats [[gnu::vector_size(16)]] = float;
using Words [[gnu::vector_size(16)]] = std::int32_t;

inline constexpr int kParts = 4;

struct Line {
  Floats of[kParts];
};

// A block of the product: rows of left, and lines of right, whose sums are in registers at a time. Arm has 32
// registers, SSE2 has 16.
#if defined(__ARM_NEON)
inline constexpr int kMostRows = 6;
inline constexpr int kFewestRows = 4;
#else
inline constexpr int kMostRows = 2;
inline constexpr int kFewestRows = 2;
#endif
inline constexpr int kLinesAtOnce = 1;

/// The line of part(i) for each of its parts.
template <class Part>
[[gnu::always_inline]] inline Line line_of(const Part& part) {
  return {{part(0), part(1), part(2), part(3)}};
}

inline Line broadcast(float x) {
  return line_of([=](int) { return Floats{x, x, x, x}; });
}
inline Line zero() { return broadcast(0.0F); }
inline Floats load_part(const float* from) {
  Floats part;
  std::memcpy(&part, from, sizeof(part));
  return part;
}
inline Line load(const float* from) {
  return line_of([=](int i) { return load_part(from + 4 * i); });
}
inline void store(float* to, const Line& x) { std::memcpy(to, x.of, sizeof(x.of)); }

/// `count` elements of T, widened, then zeros.
template <class T>
Line load_some(const void* from, std::int64_t count) {
  const auto most = static_cast<std::size_t>(std::clamp<std::int64_t>(count, 0, 16));
  T some[16];
  float widened[16] = {};
  std::memcpy(some, from, most * sizeof(T));
  for (std::size_t i = 0; i < most; ++i) widened[i] = static_cast<float>(some[i]);
  return load(widened);
}
template <class T>
void store_some(void* to, std::int64_t count, const Line& x) {
  float lanes[16];
  store(lanes, x);
  T some[16];
  for (int i = 0; i < 16; ++i) some[i] = T(lanes[i]);
  std::memcpy(to, some, static_cast<std::size_t>(std::clamp<std::int64_t>(count, 0, 16)) * sizeof(T));
}

inline Line load(const float* from, std::int64_t count) {
  return count >= 16 ? load(from) : load_some<float>(from, count);
}
inline Line load(const std::uint16_t* from, std::int64_t count) { return load_some<Bfloat16>(from, count); }
inline Line load(const Float16Bits* from, std::int64_t count) { return load_some<Float16>(from, count); }
inline void store(float* to, std::int64_t count, const Line& x) {
  if (count >= 16) return store(to, x);
  store_some<float>(to, count, x);
}
inline void store(Float16Bits* to, std::int64_t count, const Line& x) { store_some<Float16>(to, count, x); }
inline void store(std::uint16_t* to, std::int64_t count, const Line& x) {
  store_some<Bfloat16>(to, count, line_of([&](int i) {
                         const Words bits = std::bit_cast<Words>(x.of[i]);
                         const Words small = (bits & 0x7F800000) == 0;
                         return std::bit_cast<Floats>(bits & (~small | INT32_MIN));
                       }));
}

// No unit of these lines bypasses the caches.
template <class Storage>
void stream(Storage* to, const Line& x) {
  store(to, 16, x);
}
inline void finish_streams() {}

inline Line add(const Line& x, const Line& y) {
  return line_of([&](int i) { return x.of[i] + y.of[i]; });
}
inline Line subtract(const Line& x, const Line& y) {
  return line_of([&](int i) { return x.of[i] - y.of[i]; });
}
inline Line multiply(const Line& x, const Line& y) {
  return line_of([&](int i) { return x.of[i] * y.of[i]; });
}
inline Line divide(const Line& x, const Line& y) {
  return line_of([&](int i) { return x.of[i] / y.of[i]; });
}
inline Line larger(const Line& x, const Line& y) {
  return line_of([&](int i) { return x.of[i] > y.of[i] ? x.of[i] : y.of[i]; });
}
inline Line fused(const Line& x, const Line& y, const Line& z) {
#if defined(__ARM_NEON)
  return line_of([&](int i) { return Floats(vfmaq_f32(z.of[i], x.of[i], y.of[i])); });
#else
  return line_of([&](int i) { return x.of[i] * y.of[i] + z.of[i]; });
#endif
}

/// All bits set in the lanes of part i below `first`.
inline Words lanes_below(int first, int i) {
  const int at = first - 4 * i;
  return Words{0, 1, 2, 3} < Words{at, at, at, at};
}
inline Line from_lane(const Line& x, int first) {
  return line_of([&](int i) { return std::bit_cast<Floats>(std::bit_cast<Words>(x.of[i]) & ~lanes_below(first, i)); });
}
inline Line larger_from(const Line& x, const Line& y, int first) {
  const Line most = larger(x, y);
  return line_of([&](int i) { return lanes_below(first, i) ? x.of[i] : most.of[i]; });
}
inline Line power_of_two_scale(const Line& s) {
  return line_of([&](int i) {
    using Unsigned [[gnu::vector_size(16)]] = std::uint32_t;
    return std::bit_cast<Floats>((std::bit_cast<Unsigned>(s.of[i]) + 127U) << 23U);
  });
}

inline void transpose(Line* lines) {
  float words[16][16];
  for (int i = 0; i < 16; ++i) store(words[i], lines[i]);
  for (int i = 0; i < 16; ++i) {
    for (int j = 0; j < i; ++j) std::swap(words[i][j], words[j][i]);
  }
  for (int i = 0; i < 16; ++i) lines[i] = load(words[i]);
}

}  // namespace kozero::kernels::KOZERO_LINES
