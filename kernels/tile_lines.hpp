// SPDX-FileCopyrightText: The KoZeRO authors
// SPDX-License-Identifier: Apache-2.0
// tile_lines.hpp: what packing does with cache lines of 16 words: a mask of a line's beginning, 16 lines transposed.
// For files compiled for AVX-512 (F) alone; whoever includes it gets functions of its own, which no other file can
// call.
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

}  // namespace
}  // namespace kozero::kernels

#endif
