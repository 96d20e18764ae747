// SPDX-FileCopyrightText: The KoZeRO authors
// SPDX-License-Identifier: Apache-2.0
// lines_avx512.hpp: lines.hpp in AVX-512 (F, BW), with BF16's rounding if the file is compiled for it.
#pragma once
#include <immintrin.h>
#include <cstdint>

#include "kernels/matmul/host/tile_product.hpp"

namespace kozero::kernels::KOZERO_LINES {

struct Line {
  __m512 of;
};

// A block of the product: rows of left, and lines of right, whose sums are in registers at a time.
inline constexpr int kMostRows = 8;
inline constexpr int kFewestRows = 8;
inline constexpr int kLinesAtOnce = 2;

/// A mask of the lanes below `count`, of at most 32.
inline std::uint32_t lanes_below(std::int64_t count, std::int64_t lanes) {
  if (count <= 0) return 0;
  return static_cast<std::uint32_t>((std::uint64_t{1} << (count < lanes ? count : lanes)) - 1U);
}
inline __mmask16 mask_below(std::int64_t count) { return static_cast<__mmask16>(lanes_below(count, 16)); }
inline __mmask16 mask_from(int first) { return static_cast<__mmask16>(~lanes_below(first, 16)); }

inline Line zero() { return {_mm512_setzero_ps()}; }
inline Line broadcast(float x) { return {_mm512_set1_ps(x)}; }
inline Line load(const float* from) { return {_mm512_load_ps(from)}; }
inline void store(float* to, const Line& x) { _mm512_store_ps(to, x.of); }

inline Line load(const float* from, std::int64_t count) {
  return {count >= 16 ? _mm512_loadu_ps(from) : _mm512_maskz_loadu_ps(mask_below(count), from)};
}
inline __m256i load_16_bits(const void* from, std::int64_t count) {
  return count >= 16 ? _mm256_loadu_si256(static_cast<const __m256i*>(from))
                     : _mm512_castsi512_si256(_mm512_maskz_loadu_epi16(lanes_below(count, 16), from));
}
inline Line load(const std::uint16_t* from, std::int64_t count) {
  return {_mm512_castsi512_ps(_mm512_slli_epi32(_mm512_cvtepu16_epi32(load_16_bits(from, count)), 16))};
}
inline Line load(const Float16Bits* from, std::int64_t count) { return {_mm512_cvtph_ps(load_16_bits(from, count))}; }

inline void store_16_bits(void* to, std::int64_t count, __m256i x) {
  if (count >= 16) {
    _mm256_storeu_si256(static_cast<__m256i*>(to), x);
  } else {
    _mm512_mask_storeu_epi16(to, lanes_below(count, 16), _mm512_castsi256_si512(x));
  }
}
inline void store(float* to, std::int64_t count, const Line& x) { _mm512_mask_storeu_ps(to, mask_below(count), x.of); }
inline void store(Float16Bits* to, std::int64_t count, const Line& x) {
  store_16_bits(to, count, _mm512_cvtps_ph(x.of, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC));
}

/// The bf16 nearest to each lane.
inline __m256i rounded_to_bfloat16(const Line& x) {
#if defined(__AVX512BF16__)
  return reinterpret_cast<__m256i>(_mm512_cvtneps_pbh(x.of));
#else
  const __m512i bits = _mm512_castps_si512(x.of);
  const __m512i odd = _mm512_and_si512(_mm512_srli_epi32(bits, 16), _mm512_set1_epi32(1));
  const __m512i nearest = _mm512_add_epi32(_mm512_add_epi32(bits, _mm512_set1_epi32(0x7FFF)), odd);
  const __m512i sign = _mm512_and_si512(bits, _mm512_set1_epi32(INT32_MIN));
  const __mmask16 small = _mm512_testn_epi32_mask(bits, _mm512_set1_epi32(0x7F800000));
  const __mmask16 is_nan = _mm512_cmp_ps_mask(x.of, x.of, _CMP_UNORD_Q);
  __m512i result = _mm512_mask_mov_epi32(nearest, small, sign);
  result = _mm512_mask_or_epi32(result, is_nan, bits, _mm512_set1_epi32(0x400000));
  return _mm512_cvtepi32_epi16(_mm512_srli_epi32(result, 16));
#endif
}
inline void store(std::uint16_t* to, std::int64_t count, const Line& x) {
  store_16_bits(to, count, rounded_to_bfloat16(x));
}

// Whole lines that bypass the caches; `to` begins a cache line, or half of one in 16 bits.
inline void stream(float* to, const Line& x) { _mm512_stream_ps(to, x.of); }
inline void stream(std::uint16_t* to, const Line& x) {
  _mm256_stream_si256(reinterpret_cast<__m256i*>(to), rounded_to_bfloat16(x));
}
inline void stream(Float16Bits* to, const Line& x) { store(to, 16, x); }
inline void finish_streams() { _mm_sfence(); }

inline Line add(const Line& x, const Line& y) { return {_mm512_add_ps(x.of, y.of)}; }
inline Line subtract(const Line& x, const Line& y) { return {_mm512_sub_ps(x.of, y.of)}; }
inline Line multiply(const Line& x, const Line& y) { return {_mm512_mul_ps(x.of, y.of)}; }
inline Line divide(const Line& x, const Line& y) { return {_mm512_div_ps(x.of, y.of)}; }
inline Line larger(const Line& x, const Line& y) { return {_mm512_max_ps(x.of, y.of)}; }
inline Line fused(const Line& x, const Line& y, const Line& z) { return {_mm512_fmadd_ps(x.of, y.of, z.of)}; }
/// x with each pair of neighboring lanes exchanged.
inline Line exchanged(const Line& x) { return {_mm512_permute_ps(x.of, 0xB1)}; }
inline Line from_lane(const Line& x, int first) { return {_mm512_maskz_mov_ps(mask_from(first), x.of)}; }
inline Line larger_from(const Line& x, const Line& y, int first) {
  return {_mm512_mask_max_ps(x.of, mask_from(first), x.of, y.of)};
}
inline Line power_of_two_scale(const Line& s) {
  const __m512i biased = _mm512_add_epi32(_mm512_castps_si512(s.of), _mm512_set1_epi32(127));
  return {_mm512_castsi512_ps(_mm512_slli_epi32(biased, 23))};
}

/// In four rounds, pairs of lines exchange parts of 1, 2, 4 and 8 words.
[[gnu::always_inline]] inline void transpose(Line* lines) {
  __m512i x[16];
  __m512i y[16];
#pragma GCC unroll 16
  for (int i = 0; i < 16; ++i) x[i] = _mm512_castps_si512(lines[i].of);
#pragma GCC unroll 8
  for (int i = 0; i < 16; i += 2) {
    y[i] = _mm512_unpacklo_epi32(x[i], x[i + 1]);
    y[i + 1] = _mm512_unpackhi_epi32(x[i], x[i + 1]);
  }
#pragma GCC unroll 4
  for (int i = 0; i < 16; i += 4) {
    x[i] = _mm512_unpacklo_epi64(y[i], y[i + 2]);
    x[i + 1] = _mm512_unpackhi_epi64(y[i], y[i + 2]);
    x[i + 2] = _mm512_unpacklo_epi64(y[i + 1], y[i + 3]);
    x[i + 3] = _mm512_unpackhi_epi64(y[i + 1], y[i + 3]);
  }
#pragma GCC unroll 4
  for (int i = 0; i < 4; ++i) {
    y[i] = _mm512_shuffle_i32x4(x[i], x[i + 4], 0x88);
    y[i + 4] = _mm512_shuffle_i32x4(x[i], x[i + 4], 0xDD);
    y[i + 8] = _mm512_shuffle_i32x4(x[i + 8], x[i + 12], 0x88);
    y[i + 12] = _mm512_shuffle_i32x4(x[i + 8], x[i + 12], 0xDD);
  }
#pragma GCC unroll 8
  for (int i = 0; i < 8; ++i) {
    lines[i].of = _mm512_castsi512_ps(_mm512_shuffle_i32x4(y[i], y[i + 8], 0x88));
    lines[i + 8].of = _mm512_castsi512_ps(_mm512_shuffle_i32x4(y[i], y[i + 8], 0xDD));
  }
}

}  // namespace kozero::kernels::KOZERO_LINES
