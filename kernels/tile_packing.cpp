// SPDX-FileCopyrightText: The KoZeRO authors
// SPDX-License-Identifier: Apache-2.0
// tile_packing.cpp: packing by whole cache lines: a line of 16 words is copied, or 16 lines are transposed.
// Compiled for AVX-512 (F, BW): nothing here may be called before the processor was asked.
#include <immintrin.h>

#include <kozero/kernels/tile_lines.hpp>
#include <kozero/kernels/tile_packing.hpp>
#include <kozero/kernels/tile_product.hpp>

namespace kozero::kernels {
namespace {

/// The first `count` elements at `from`, at most a cache line of them; zeros behind.
__m512i line_of(const float* from, std::int64_t count) {
  return _mm512_maskz_loadu_epi32(static_cast<__mmask16>(lanes_below(count, 16)), from);
}
__m512i line_of(const std::uint16_t* from, std::int64_t count) {
  return _mm512_maskz_loadu_epi16(lanes_below(count, 32), from);
}

/// Words k of 16 rows, of one word each: lines[k] holds word k of all rows. `rows` of them exist, `words` of k.
template <class T>
struct WordsAcross;

/// A word is one float: a line of the matrix is a line of words.
template <>
struct WordsAcross<float> {
  static __m512i line(const TileSource<float>& from, std::int64_t row, std::int64_t k) {
    if (k >= from.k) return _mm512_setzero_si512();
    return line_of(from.data + k * from.stride + row, from.rows - row);
  }
};

/// A word is a pair of bf16 from two lines of the matrix.
template <>
struct WordsAcross<std::uint16_t> {
  static __m512i half(const TileSource<std::uint16_t>& from, std::int64_t row, std::int64_t k) {
    if (k >= from.k) return _mm512_setzero_si512();
    const std::uint32_t there = lanes_below(from.rows - row, 16);
    const __m512i line = _mm512_maskz_loadu_epi16(there, from.data + k * from.stride + row);
    return _mm512_cvtepu16_epi32(_mm512_castsi512_si256(line));
  }
  static __m512i line(const TileSource<std::uint16_t>& from, std::int64_t row, std::int64_t k) {
    return _mm512_or_si512(half(from, row, k), _mm512_slli_epi32(half(from, row, k + 1), 16));
  }
};

/// 16 lines, of 16 words of k each: rows [row, row + 16), from k on.
template <class T>
void lines_along(__m512i* lines, const TileSource<T>& from, std::int64_t row, std::int64_t k) {
  for (int i = 0; i < 16; ++i) {
    const bool exists = row + i < from.rows;
    lines[i] = exists ? line_of(from.data + (row + i) * from.stride + k, from.k - k) : _mm512_setzero_si512();
  }
}

/// 16 lines of 16 rows each: words of k from `k` on.
template <class T>
void lines_across(__m512i* lines, const TileSource<T>& from, std::int64_t row, std::int64_t k) {
  constexpr std::int64_t kWord = kStepExtent<T> / kStepWords;
  for (int i = 0; i < 16; ++i) {
    lines[i] = row < from.rows ? WordsAcross<T>::line(from, row, k + i * kWord) : _mm512_setzero_si512();
  }
}

/// A step of 16 rows. Left wants a line a row, right wants a line a word.
template <class T>
void pack_half_step(char* to, TileSide side, const TileSource<T>& from, std::int64_t row,
                                  std::int64_t k) {
  __m512i lines[16];
  if (from.k_across) {
    lines_across(lines, from, row, k);
  } else {
    lines_along(lines, from, row, k);
  }
  if (from.k_across == (side == TileSide::left)) transpose(lines);
  const std::int64_t stride = side == TileSide::left ? 64 : 128;
  for (int i = 0; i < 16; ++i) _mm512_store_si512(to + i * stride, lines[i]);
}

template <class T>
void pack(void* to, TileSide side, const TileSource<T>& from, std::int64_t first_row, std::int64_t first_k,
          std::int64_t steps) {
  auto* out = static_cast<char*>(to);
  const std::int64_t second_half = side == TileSide::left ? kStepBytes / 2 : 64;
  for (std::int64_t step = 0; step < steps; ++step, out += kStepBytes) {
    const std::int64_t k = first_k + step * kStepExtent<T>;
    pack_half_step(out, side, from, first_row, k);
    pack_half_step(out + second_half, side, from, first_row + kTileRows / 2, k);
  }
}

}  // namespace

void pack_words(void* to, TileSide side, const TileSource<float>& from, std::int64_t first_row, std::int64_t first_k,
                std::int64_t steps) {
  pack(to, side, from, first_row, first_k, steps);
}

void pack_pairs(void* to, TileSide side, const TileSource<std::uint16_t>& from, std::int64_t first_row,
                std::int64_t first_k, std::int64_t steps) {
  pack(to, side, from, first_row, first_k, steps);
}

}  // namespace kozero::kernels
