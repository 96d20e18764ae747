// SPDX-FileCopyrightText: The KoZeRO authors
// SPDX-License-Identifier: Apache-2.0
// tile_lines.hpp: cache lines of 16 words: a mask of a line's beginning, 16 lines transposed, powers of two.
//   2^t = 2^n 2^r      n = round(t), r = t - n, |r| <= 1/2
// 2^r is the polynomial of degree 6 with the least relative error, 1.9e-9; in float it is within 8e-8.
// Only for files compiled for AVX-512 (F). The functions have internal linkage, so that no other file can call them.
#pragma once
#include <cstdint>

#if defined(__AVX512F__)
#include <immintrin.h>

namespace kozero::kernels {
namespace {

/// A mask of the lanes below `count`, of at most `lanes`.
inline std::uint32_t lanes_below(std::int64_t count, std::int64_t lanes) {
  if (count <= 0) return 0;
  return static_cast<std::uint32_t>((std::uint64_t{1} << (count < lanes ? count : lanes)) - 1U);
}

/// Transposes 16 x 16 words: in four rounds, pairs of lines exchange parts of 1, 2, 4 and 8 words.
[[gnu::always_inline]] inline void transpose(__m512i* x) {
  __m512i y[16];
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
    x[i] = _mm512_shuffle_i32x4(y[i], y[i + 8], 0x88);
    x[i + 8] = _mm512_shuffle_i32x4(y[i], y[i + 8], 0xDD);
  }
}

/// 2^t for t < 127, or 0 in lanes outside the mask.
inline __m512 power_of_two(__mmask16 mask, __m512 t) {
  t = _mm512_max_ps(_mm512_set1_ps(-150.0F), t);  // in this order NaN stays
  const __m512 n = _mm512_roundscale_ps(t, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
  const __m512 r = _mm512_sub_ps(t, n);
  __m512 series = _mm512_set1_ps(0x1.41d334p-13F);
  series = _mm512_fmadd_ps(series, r, _mm512_set1_ps(0x1.5f456ap-10F));
  series = _mm512_fmadd_ps(series, r, _mm512_set1_ps(0x1.3b2dbcp-7F));
  series = _mm512_fmadd_ps(series, r, _mm512_set1_ps(0x1.c6aed4p-5F));
  series = _mm512_fmadd_ps(series, r, _mm512_set1_ps(0x1.ebfbdap-3F));
  series = _mm512_fmadd_ps(series, r, _mm512_set1_ps(0x1.62e43p-1F));
  series = _mm512_fmadd_ps(series, r, _mm512_set1_ps(1.0F));
  return _mm512_maskz_scalef_ps(mask, series, n);
}

}  // namespace
}  // namespace kozero::kernels

#endif
