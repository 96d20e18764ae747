// SPDX-FileCopyrightText: The KoZeRO authors
// SPDX-License-Identifier: Apache-2.0
// lines_avx2.hpp: lines.hpp in AVX2, FMA and F16C, with two registers per line.
#pragma once
#include <immintrin.h>
#include <cstdint>
#include <cstring>

#include "kernels/matmul/host/tile_product.hpp"

namespace kozero::kernels::KOZERO_LINES {

struct Line {
  __m256 low, high;
};

// A block of the product: rows of left, and lines of right, whose sums are in registers at a time. 32 rows are four
// times 6 and two times 4, whose 12 and 8 sums hide the latency of 4 or 5 cycles.
inline constexpr int kMostRows = 6;
inline constexpr int kFewestRows = 4;
inline constexpr int kLinesAtOnce = 1;

/// All bits set in the lanes below `count`, of 8.
inline __m256i lanes_below(std::int64_t count) {
  const auto most = static_cast<int>(count < 0 ? 0 : count < 8 ? count : 8);
  return _mm256_cmpgt_epi32(_mm256_set1_epi32(most), _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7));
}

inline Line zero() { return {_mm256_setzero_ps(), _mm256_setzero_ps()}; }
inline Line broadcast(float x) { return {_mm256_set1_ps(x), _mm256_set1_ps(x)}; }
inline Line load(const float* from) { return {_mm256_load_ps(from), _mm256_load_ps(from + 8)}; }
inline void store(float* to, const Line& x) {
  _mm256_store_ps(to, x.low);
  _mm256_store_ps(to + 8, x.high);
}

inline Line load(const float* from, std::int64_t count) {
  if (count >= 16) return {_mm256_loadu_ps(from), _mm256_loadu_ps(from + 8)};
  return {_mm256_maskload_ps(from, lanes_below(count)), _mm256_maskload_ps(from + 8, lanes_below(count - 8))};
}
inline void store(float* to, std::int64_t count, const Line& x) {
  if (count >= 16) {
    _mm256_storeu_ps(to, x.low);
    _mm256_storeu_ps(to + 8, x.high);
  } else {
    _mm256_maskstore_ps(to, lanes_below(count), x.low);
    _mm256_maskstore_ps(to + 8, lanes_below(count - 8), x.high);
  }
}

inline __m256i load_16_bits(const void* from, std::int64_t count) {
  if (count >= 16) return _mm256_loadu_si256(static_cast<const __m256i*>(from));
  alignas(32) std::uint16_t some[16] = {};
  if (count > 0) std::memcpy(some, from, static_cast<std::size_t>(count) * 2);
  return _mm256_load_si256(reinterpret_cast<const __m256i*>(some));
}
inline void store_16_bits(void* to, std::int64_t count, __m256i x) {
  if (count >= 16) return _mm256_storeu_si256(static_cast<__m256i*>(to), x);
  alignas(32) std::uint16_t all[16];
  _mm256_store_si256(reinterpret_cast<__m256i*>(all), x);
  if (count > 0) std::memcpy(to, all, static_cast<std::size_t>(count) * 2);
}
inline __m256 widened(__m128i bfloat16s) {
  return _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_cvtepu16_epi32(bfloat16s), 16));
}
inline Line load(const std::uint16_t* from, std::int64_t count) {
  const __m256i all = load_16_bits(from, count);
  return {widened(_mm256_castsi256_si128(all)), widened(_mm256_extracti128_si256(all, 1))};
}
inline Line load(const Float16Bits* from, std::int64_t count) {
  const __m256i all = load_16_bits(from, count);
  return {_mm256_cvtph_ps(_mm256_castsi256_si128(all)), _mm256_cvtph_ps(_mm256_extracti128_si256(all, 1))};
}

/// The bits of the bf16 nearest to each lane, in the lower halves.
inline __m256i rounded_to_bfloat16(__m256 x) {
  const __m256i bits = _mm256_castps_si256(x);
  const __m256i odd = _mm256_and_si256(_mm256_srli_epi32(bits, 16), _mm256_set1_epi32(1));
  const __m256i nearest = _mm256_add_epi32(_mm256_add_epi32(bits, _mm256_set1_epi32(0x7FFF)), odd);
  const __m256i sign = _mm256_and_si256(bits, _mm256_set1_epi32(INT32_MIN));
  const __m256i exponent = _mm256_and_si256(bits, _mm256_set1_epi32(0x7F800000));
  const __m256i small = _mm256_cmpeq_epi32(exponent, _mm256_setzero_si256());
  const __m256i is_nan = _mm256_castps_si256(_mm256_cmp_ps(x, x, _CMP_UNORD_Q));
  const __m256i number = _mm256_blendv_epi8(nearest, sign, small);
  const __m256i quiet = _mm256_or_si256(bits, _mm256_set1_epi32(0x400000));
  return _mm256_srli_epi32(_mm256_blendv_epi8(number, quiet, is_nan), 16);
}
inline void store(std::uint16_t* to, std::int64_t count, const Line& x) {
  // Packing works on halves of 128 bits, which are then put into order.
  const __m256i packed = _mm256_packus_epi32(rounded_to_bfloat16(x.low), rounded_to_bfloat16(x.high));
  store_16_bits(to, count, _mm256_permute4x64_epi64(packed, 0xD8));
}
inline void store(Float16Bits* to, std::int64_t count, const Line& x) {
  constexpr int kNearest = _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC;
  store_16_bits(to, count, _mm256_set_m128i(_mm256_cvtps_ph(x.high, kNearest), _mm256_cvtps_ph(x.low, kNearest)));
}

// No unit of these lines bypasses the caches.
template <class Storage>
void stream(Storage* to, const Line& x) {
  store(to, 16, x);
}
inline void finish_streams() {}

inline Line add(const Line& x, const Line& y) { return {_mm256_add_ps(x.low, y.low), _mm256_add_ps(x.high, y.high)}; }
inline Line subtract(const Line& x, const Line& y) {
  return {_mm256_sub_ps(x.low, y.low), _mm256_sub_ps(x.high, y.high)};
}
inline Line multiply(const Line& x, const Line& y) {
  return {_mm256_mul_ps(x.low, y.low), _mm256_mul_ps(x.high, y.high)};
}
inline Line divide(const Line& x, const Line& y) {
  return {_mm256_div_ps(x.low, y.low), _mm256_div_ps(x.high, y.high)};
}
inline Line larger(const Line& x, const Line& y) {
  return {_mm256_max_ps(x.low, y.low), _mm256_max_ps(x.high, y.high)};
}
inline Line fused(const Line& x, const Line& y, const Line& z) {
  return {_mm256_fmadd_ps(x.low, y.low, z.low), _mm256_fmadd_ps(x.high, y.high, z.high)};
}
inline Line from_lane(const Line& x, int first) {
  return {_mm256_andnot_ps(_mm256_castsi256_ps(lanes_below(first)), x.low),
          _mm256_andnot_ps(_mm256_castsi256_ps(lanes_below(first - 8)), x.high)};
}
inline Line larger_from(const Line& x, const Line& y, int first) {
  const Line most = larger(x, y);
  return {_mm256_blendv_ps(most.low, x.low, _mm256_castsi256_ps(lanes_below(first))),
          _mm256_blendv_ps(most.high, x.high, _mm256_castsi256_ps(lanes_below(first - 8)))};
}
inline __m256 power_of_two_scale(__m256 s) {
  const __m256i biased = _mm256_add_epi32(_mm256_castps_si256(s), _mm256_set1_epi32(127));
  return _mm256_castsi256_ps(_mm256_slli_epi32(biased, 23));
}
inline Line power_of_two_scale(const Line& s) { return {power_of_two_scale(s.low), power_of_two_scale(s.high)}; }

/// Transposes 8 x 8 floats: in three rounds, pairs of registers exchange parts of 1, 2 and 4 floats.
[[gnu::always_inline]] inline void transpose_8(const __m256* x, __m256* to) {
  __m256 y[8];
  __m256 z[8];
#pragma GCC unroll 4
  for (int i = 0; i < 8; i += 2) {
    y[i] = _mm256_unpacklo_ps(x[i], x[i + 1]);
    y[i + 1] = _mm256_unpackhi_ps(x[i], x[i + 1]);
  }
#pragma GCC unroll 2
  for (int i = 0; i < 8; i += 4) {
    z[i] = _mm256_shuffle_ps(y[i], y[i + 2], 0x44);
    z[i + 1] = _mm256_shuffle_ps(y[i], y[i + 2], 0xEE);
    z[i + 2] = _mm256_shuffle_ps(y[i + 1], y[i + 3], 0x44);
    z[i + 3] = _mm256_shuffle_ps(y[i + 1], y[i + 3], 0xEE);
  }
#pragma GCC unroll 4
  for (int i = 0; i < 4; ++i) {
    to[i] = _mm256_permute2f128_ps(z[i], z[i + 4], 0x20);
    to[i + 4] = _mm256_permute2f128_ps(z[i], z[i + 4], 0x31);
  }
}

/// In quarters of 8 x 8.
[[gnu::always_inline]] inline void transpose(Line* lines) {
  __m256 quarter[4][8];
  __m256 turned[4][8];
#pragma GCC unroll 8
  for (int i = 0; i < 8; ++i) {
    quarter[0][i] = lines[i].low;
    quarter[1][i] = lines[i].high;
    quarter[2][i] = lines[i + 8].low;
    quarter[3][i] = lines[i + 8].high;
  }
#pragma GCC unroll 4
  for (int q = 0; q < 4; ++q) transpose_8(quarter[q], turned[q]);
#pragma GCC unroll 8
  for (int i = 0; i < 8; ++i) {
    lines[i] = {turned[0][i], turned[2][i]};
    lines[i + 8] = {turned[1][i], turned[3][i]};
  }
}

}  // namespace kozero::kernels::KOZERO_LINES
