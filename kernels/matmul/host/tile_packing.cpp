// SPDX-FileCopyrightText: The KoZeRO authors
// SPDX-License-Identifier: Apache-2.0
// tile_packing.cpp: packing by whole cache lines: a line of 16 words is copied, or 16 lines are transposed.
// Compiled for AVX-512 (F, BW): call only on a processor that has it.
#include <immintrin.h>

#include "kernels/matmul/host/tile_lines.hpp"
#include "kernels/matmul/host/tile_packing.hpp"
#include "kernels/matmul/host/tile_product.hpp"

namespace kozero::kernels {
namespace {

/// Reads lines of a matrix. `whole`: no line reaches past an end of the matrix.
template <class T, bool whole>
struct Reader {
  const TileSource<T>& from;

  /// Whether a word holds one element.
  static constexpr bool kSingle = kStepExtent<T> == kStepWords;

  /// At most a cache line of packed elements, `count` of which exist, followed by zeros.
  [[nodiscard]] __m512i line(const T* begin, std::int64_t count) const {
    if constexpr (std::is_same_v<T, Float16Bits>) {
      return _mm512_castps_si512(_mm512_cvtph_ps(sixteen(begin, count)));
    } else if constexpr (whole) {
      return _mm512_loadu_si512(begin);
    } else if constexpr (kSingle) {
      return _mm512_maskz_loadu_epi32(static_cast<__mmask16>(lanes_below(count, 16)), begin);
    } else {
      return _mm512_maskz_loadu_epi16(lanes_below(count, 32), begin);
    }
  }

  /// 16 words of k of one row.
  [[nodiscard]] __m512i along(std::int64_t row, std::int64_t k) const {
    if (!whole && row >= from.rows) return _mm512_setzero_si512();
    return line(from.data + row * from.stride + k, from.k - k);
  }

  /// One word of k of 16 rows: one float per row, or two bf16 from two lines of the matrix.
  [[nodiscard]] __m512i across(std::int64_t row, std::int64_t k) const {
    if (!whole && (k >= from.k || row >= from.rows)) return _mm512_setzero_si512();
    if constexpr (kSingle) {
      return line(from.data + k * from.stride + row, from.rows - row);
    } else {
      return _mm512_or_si512(halves(row, k), _mm512_slli_epi32(halves(row, k + 1), 16));
    }
  }

 private:
  /// An element of k of 16 rows, in the lower halves of words.
  [[nodiscard]] __m512i halves(std::int64_t row, std::int64_t k) const {
    if (!whole && k >= from.k) return _mm512_setzero_si512();
    return _mm512_cvtepu16_epi32(sixteen(from.data + k * from.stride + row, from.rows - row));
  }

  /// 16 elements of 16 bits, `count` of which exist.
  [[nodiscard]] static __m256i sixteen(const T* begin, std::int64_t count) {
    if constexpr (whole) {
      return _mm256_loadu_si256(reinterpret_cast<const __m256i*>(begin));
    } else {
      return _mm512_castsi512_si256(_mm512_maskz_loadu_epi16(lanes_below(count, 16), begin));
    }
  }
};

/// Packs a step of 16 rows. Left has one line per row, right has one line per word.
template <TileSide side, bool k_across, class T, bool whole>
[[gnu::always_inline]] inline void pack_half_step(char* to, const Reader<T, whole>& from, std::int64_t row,
                                                  std::int64_t k) {
  constexpr std::int64_t kWord = kStepExtent<T> / kStepWords;
  constexpr std::int64_t kLine = side == TileSide::left ? 64 : 128;
  __m512i lines[16];
#pragma GCC unroll 16
  for (int i = 0; i < 16; ++i) lines[i] = k_across ? from.across(row, k + i * kWord) : from.along(row + i, k);
  if constexpr (k_across == (side == TileSide::left)) transpose(lines);
#pragma GCC unroll 16
  for (int i = 0; i < 16; ++i) _mm512_store_si512(to + i * kLine, lines[i]);
}

template <TileSide side, bool k_across, class T>
void pack_steps(char* to, const TileSource<T>& from, std::int64_t row, std::int64_t first_k, std::int64_t steps) {
  constexpr std::int64_t kHalf = kTileRows / 2;
  constexpr std::int64_t kSecondHalf = side == TileSide::left ? kStepBytes / 2 : 64;
  for (std::int64_t step = 0; step < steps; ++step, to += kStepBytes) {
    const std::int64_t k = first_k + step * kStepExtent<T>;
    if (row + kTileRows <= from.rows && k + kStepExtent<T> <= from.k) {
      pack_half_step<side, k_across>(to, Reader<T, true>{from}, row, k);
      pack_half_step<side, k_across>(to + kSecondHalf, Reader<T, true>{from}, row + kHalf, k);
    } else {
      pack_half_step<side, k_across>(to, Reader<T, false>{from}, row, k);
      pack_half_step<side, k_across>(to + kSecondHalf, Reader<T, false>{from}, row + kHalf, k);
    }
  }
}

template <class T>
void pack(void* to, TileSide side, const TileSource<T>& from, std::int64_t row, std::int64_t k, std::int64_t steps) {
  auto* const out = static_cast<char*>(to);
  if (side == TileSide::left) {
    from.k_across ? pack_steps<TileSide::left, true>(out, from, row, k, steps)
                  : pack_steps<TileSide::left, false>(out, from, row, k, steps);
  } else {
    from.k_across ? pack_steps<TileSide::right, true>(out, from, row, k, steps)
                  : pack_steps<TileSide::right, false>(out, from, row, k, steps);
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

void pack_halves(void* to, TileSide side, const TileSource<Float16Bits>& from, std::int64_t first_row,
                 std::int64_t first_k, std::int64_t steps) {
  pack(to, side, from, first_row, first_k, steps);
}

}  // namespace kozero::kernels
