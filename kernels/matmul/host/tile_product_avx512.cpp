// SPDX-FileCopyrightText: The KoZeRO authors
// SPDX-License-Identifier: Apache-2.0
// tile_product_avx512.cpp: the product of blocks, with eight rows of c at a time in sixteen registers. For each word of
// k two lines of right are loaded, and each of eight words of left is broadcast and multiplied with both. Compiled for
// AVX-512 with bf16: call only on a processor that has it.
#include <immintrin.h>

#include "kernels/matmul/host/tile_product.hpp"

namespace kozero::kernels::avx512 {
namespace {

constexpr int kRowsAtOnce = 8;

struct FloatWord {
  static __m512 add(__m512 c, __m512i left, __m512i right) {
    return _mm512_fmadd_ps(_mm512_castsi512_ps(left), _mm512_castsi512_ps(right), c);
  }
};

struct PairOfBfloat16 {
  static __m512 add(__m512 c, __m512i left, __m512i right) {
    return _mm512_dpbf16_ps(c, reinterpret_cast<__m512bh>(left), reinterpret_cast<__m512bh>(right));
  }
};

/// Eight rows of c from eight rows of left.
template <class Word>
inline void product_of_rows(float* c, const float* before, const std::int32_t* left, const std::int32_t* right,
                            std::int64_t steps) {
  __m512 sum[kRowsAtOnce][2];
  for (int r = 0; r < kRowsAtOnce; ++r) {
    sum[r][0] = before != nullptr ? _mm512_load_ps(before + r * kTileRows) : _mm512_setzero_ps();
    sum[r][1] = before != nullptr ? _mm512_load_ps(before + r * kTileRows + 16) : _mm512_setzero_ps();
  }
  for (std::int64_t step = 0; step < steps; ++step, left += kTileRows * kStepWords) {
#pragma GCC unroll 2
    for (int word = 0; word < kStepWords; ++word, right += kTileRows) {
      const __m512i low = _mm512_load_si512(right);
      const __m512i high = _mm512_load_si512(right + 16);
#pragma GCC unroll 8
      for (int r = 0; r < kRowsAtOnce; ++r) {
        const __m512i broadcast = _mm512_set1_epi32(left[r * kStepWords + word]);
        sum[r][0] = Word::add(sum[r][0], broadcast, low);
        sum[r][1] = Word::add(sum[r][1], broadcast, high);
      }
    }
  }
  for (int r = 0; r < kRowsAtOnce; ++r) {
    _mm512_store_ps(c + r * kTileRows, sum[r][0]);
    _mm512_store_ps(c + r * kTileRows + 16, sum[r][1]);
  }
}

template <class Word>
inline void multiply(const TileProduct& product) {
  if (product.beside.part != nullptr) {
    for (std::int64_t step = 0; step < product.steps; ++step) product.beside.part(product.beside.of, step);
  }
  for (int first = 0; first < kTileRows; first += kRowsAtOnce) {
    const float* const before = product.before == nullptr ? nullptr : product.before + first * kTileRows;
    product_of_rows<Word>(product.c + first * kTileRows, before,
                          static_cast<const std::int32_t*>(product.left) + first * kStepWords,
                          static_cast<const std::int32_t*>(product.right), product.steps);
  }
}

}  // namespace

void product_of_floats(const TileProduct& product) { multiply<FloatWord>(product); }

void product_of_bfloat16(const TileProduct& product) { multiply<PairOfBfloat16>(product); }

}  // namespace kozero::kernels::avx512
