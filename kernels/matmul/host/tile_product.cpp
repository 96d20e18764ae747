// SPDX-FileCopyrightText: The KoZeRO authors
// SPDX-License-Identifier: Apache-2.0
// tile_product.cpp: the product of two blocks in lines. A few rows of c stay in registers while k runs: for each word
// of k, lines of right are loaded, and each row's word of left is broadcast and multiplied with them. Compiled for each
// kind of lines (lines.hpp): call only on a processor that has them.
#include "kernels/matmul/host/tile_product.hpp"

#include "kernels/matmul/host/lines.hpp"

namespace kozero::kernels::KOZERO_LINES {
namespace {

struct FloatWord {
  static Line broadcast_word(const float* word) { return broadcast(*word); }
  static Line add_product(const Line& sum, const Line& left, const Line& right) { return fused(left, right, sum); }
};

#if KOZERO_LINES_OF_PAIRS
struct PairOfBfloat16 {
  static Line broadcast_word(const float* word) {
    return {_mm512_castsi512_ps(_mm512_set1_epi32(*reinterpret_cast<const std::int32_t*>(word)))};
  }
  static Line add_product(const Line& sum, const Line& left, const Line& right) {
    return {_mm512_dpbf16_ps(sum.of, reinterpret_cast<__m512bh>(left.of), reinterpret_cast<__m512bh>(right.of))};
  }
};
#endif

/// Calls of product_of_rows for a whole block, and the cache lines of the later block that each prefetches per step. So
/// the prefetches are distributed over the product; steps are at most a line longer than their elements.
constexpr int kCalls = (kTileRows + kMostRows - 1) / kMostRows * (kTileRows / kLineFloats / kLinesAtOnce);
constexpr std::int64_t kLineBytes = 64;
constexpr int kLaterLines = (kStepBytes / kLineBytes + kCalls) / kCalls;

/// kRows rows and kLinesAtOnce lines of c. Prefetches lines from `later` on, if it is not null.
template <class Word, int kRows>
[[gnu::always_inline]] inline void product_of_rows(float* c, const float* before, const float* left, const float* right,
                                                   const char* later, std::int64_t steps, std::int64_t step_words) {
  Line sum[kRows][kLinesAtOnce];
#pragma GCC unroll 8
  for (int r = 0; r < kRows; ++r) {
#pragma GCC unroll 2
    for (int l = 0; l < kLinesAtOnce; ++l) {
      sum[r][l] = before != nullptr ? load(before + r * kTileRows + l * kLineFloats) : zero();
    }
  }
  for (std::int64_t step = 0; step < steps; ++step, left += step_words, right += step_words) {
    if (later != nullptr) {
#pragma GCC unroll 16
      for (int line = 0; line < kLaterLines; ++line) __builtin_prefetch(later + line * kLineBytes, 0, 2);
      later += kLaterLines * kLineBytes;
    }
#pragma GCC unroll 4
    for (int word = 0; word < kStepWords; ++word) {
      Line of_right[kLinesAtOnce];
#pragma GCC unroll 2
      for (int l = 0; l < kLinesAtOnce; ++l) of_right[l] = load(right + word * kTileRows + l * kLineFloats);
#pragma GCC unroll 8
      for (int r = 0; r < kRows; ++r) {
        const Line of_left = Word::broadcast_word(left + r * kStepWords + word);
#pragma GCC unroll 2
        for (int l = 0; l < kLinesAtOnce; ++l) sum[r][l] = Word::add_product(sum[r][l], of_left, of_right[l]);
      }
    }
  }
#pragma GCC unroll 8
  for (int r = 0; r < kRows; ++r) {
#pragma GCC unroll 2
    for (int l = 0; l < kLinesAtOnce; ++l) store(c + r * kTileRows + l * kLineFloats, sum[r][l]);
  }
}

template <class Word>
void product_of(const TileProduct& product) {
  constexpr std::int64_t kColumns = kLinesAtOnce * kLineFloats;
  const std::int64_t step_words = product.step_bytes / 4;
  const char* later = static_cast<const char*>(product.later);
  if (product.beside.part != nullptr) {
    for (std::int64_t step = 0; step < product.steps; ++step) product.beside.part(product.beside.of, step);
  }
  for (std::int64_t column = 0; column < product.columns; column += kColumns) {
    const float* const right = static_cast<const float*>(product.right) + column;
    for (std::int64_t row = 0; row < product.rows;) {
      const float* const left = static_cast<const float*>(product.left) + row * kStepWords;
      const std::int64_t at = row * kTileRows + column;
      const float* const before = product.before == nullptr ? nullptr : product.before + at;
      const std::int64_t rest = product.rows - row;
      // 8 rows are two times 4, not 6 and 2.
      if (rest > 2 * kFewestRows || (rest > kFewestRows && rest <= kMostRows)) {
        product_of_rows<Word, kMostRows>(product.c + at, before, left, right, later, product.steps, step_words);
        row += kMostRows;
      } else {
        product_of_rows<Word, kFewestRows>(product.c + at, before, left, right, later, product.steps, step_words);
        row += kFewestRows;
      }
      if (later != nullptr) later += product.steps * kLaterLines * kLineBytes;
    }
  }
}

}  // namespace

void product_of_floats(const TileProduct& product) { product_of<FloatWord>(product); }

#if KOZERO_LINES_OF_PAIRS
void product_of_bfloat16(const TileProduct& product) { product_of<PairOfBfloat16>(product); }
#endif

}  // namespace kozero::kernels::KOZERO_LINES
