// SPDX-FileCopyrightText: The KoZeRO authors
// SPDX-License-Identifier: Apache-2.0
// tile_blocks.cpp: tile_blocks.hpp in lines: a line of 16 words is copied, or 16 lines are transposed; rows of 32 sums
// are stored as two lines. Compiled for each kind of lines (lines.hpp): call only on a processor that has them.
#include "kernels/matmul/host/tile_blocks.hpp"

#include <algorithm>

#include "kernels/matmul/host/lines.hpp"
#include "kernels/ops/gelu_constants.hpp"

namespace kozero::kernels::KOZERO_LINES {
namespace {

/// Reads lines of a matrix whose words are its elements as floats. `whole`: no line reaches past an end of the matrix.
template <class T, bool pairs, bool whole>
struct Reader {
  const TileSource<T>& from;

  static constexpr std::int64_t kWord = 1;  // elements of k in a word
  /// 16 words of k of one row.
  [[nodiscard]] Line along(std::int64_t row, std::int64_t k) const {
    if (!whole && row >= from.rows) return zero();
    return load(from.data + row * from.stride + k, whole ? 16 : from.k - k);
  }
  /// One word of k of 16 rows.
  [[nodiscard]] Line across(std::int64_t row, std::int64_t k) const {
    if (!whole && (k >= from.k || row >= from.rows)) return zero();
    return load(from.data + k * from.stride + row, whole ? 16 : from.rows - row);
  }
};

#if KOZERO_LINES_OF_PAIRS
/// Reads lines of a matrix of bf16 as pairs, the earlier k in the upper half of a word.
template <bool whole>
struct Reader<std::uint16_t, true, whole> {
  const TileSource<std::uint16_t>& from;

  static constexpr std::int64_t kWord = 2;
  [[nodiscard]] Line along(std::int64_t row, std::int64_t k) const {
    if (!whole && (row >= from.rows || k >= from.k)) return zero();
    const std::uint16_t* const begin = from.data + row * from.stride + k;
    const std::int64_t count = whole ? 32 : from.k - k;
    const __m512i line =
        count >= 32 ? _mm512_loadu_si512(begin) : _mm512_maskz_loadu_epi16(lanes_below(count, 32), begin);
    return {_mm512_castsi512_ps(_mm512_rol_epi32(line, 16))};
  }
  /// Pairs from two lines of the matrix.
  [[nodiscard]] Line across(std::int64_t row, std::int64_t k) const {
    return {_mm512_castsi512_ps(_mm512_or_si512(_mm512_slli_epi32(halves(row, k), 16), halves(row, k + 1)))};
  }
  [[nodiscard]] __m512i halves(std::int64_t row, std::int64_t k) const {
    if (!whole && (k >= from.k || row >= from.rows)) return _mm512_setzero_si512();
    return _mm512_cvtepu16_epi32(load_16_bits(from.data + k * from.stride + row, whole ? 16 : from.rows - row));
  }
};
#endif

/// Packs a step of 16 rows. Left has one line per row, right has one line per word.
template <TileSide side, bool k_across, class Reads>
[[gnu::always_inline]] inline void pack_half_step(float* to, const Reads& from, std::int64_t row, std::int64_t k) {
  constexpr std::int64_t kLine = side == TileSide::left ? kStepWords : kTileRows;
  Line lines[16];
#pragma GCC unroll 16
  for (int i = 0; i < 16; ++i) lines[i] = k_across ? from.across(row, k + i * Reads::kWord) : from.along(row + i, k);
  if constexpr (k_across == (side == TileSide::left)) transpose(lines);
#pragma GCC unroll 16
  for (int i = 0; i < 16; ++i) store(to + i * kLine, lines[i]);
}

template <TileSide side, bool k_across, bool pairs, class T>
void pack_steps(float* to, const TileSource<T>& from, std::int64_t row, std::int64_t first_k, PackedSteps steps) {
  constexpr std::int64_t kHalf = kTileRows / 2;
  constexpr std::int64_t kSecondHalf = side == TileSide::left ? kHalf * kStepWords : kStepWords;
  constexpr std::int64_t kExtent = pairs ? 2 * kStepWords : kStepWords;
  for (std::int64_t step = 0; step < steps.count; ++step, to += steps.words) {
    const std::int64_t k = first_k + step * kExtent;
    if (row + kTileRows <= from.rows && k + kExtent <= from.k) {
      pack_half_step<side, k_across>(to, Reader<T, pairs, true>{from}, row, k);
      pack_half_step<side, k_across>(to + kSecondHalf, Reader<T, pairs, true>{from}, row + kHalf, k);
    } else {
      pack_half_step<side, k_across>(to, Reader<T, pairs, false>{from}, row, k);
      pack_half_step<side, k_across>(to + kSecondHalf, Reader<T, pairs, false>{from}, row + kHalf, k);
    }
  }
}

template <bool pairs, class Word, class T>
void pack_into(Word* words, TileSide side, const TileSource<T>& from, std::int64_t row, std::int64_t k,
               PackedSteps steps) {
  auto* const to = reinterpret_cast<float*>(words);
  if (side == TileSide::left) {
    from.k_across ? pack_steps<TileSide::left, true, pairs>(to, from, row, k, steps)
                  : pack_steps<TileSide::left, false, pairs>(to, from, row, k, steps);
  } else {
    from.k_across ? pack_steps<TileSide::right, true, pairs>(to, from, row, k, steps)
                  : pack_steps<TileSide::right, false, pairs>(to, from, row, k, steps);
  }
}

/// 32 numbers of a row, of which `count` exist.
struct Row {
  Line line[2];
};

template <class Storage>
Row load_row(const Storage* from, std::int64_t count) {
  return {load(from, count), load(from + 16, count - 16)};
}

template <class Storage>
void store_row(Storage* to, std::int64_t count, const Row& row) {
  store(to, count, row.line[0]);
  if (count > 16) store(to + 16, count - 16, row.line[1]);
}

/// 1 / (1 + exp(-2u)) of x.
inline Line gelu_share(const Line& x, const Line& square) {
  const Line exponent = multiply(x, fused(broadcast(kGeluCubic), square, broadcast(kGeluLinear)));
  const Line bounded = subtract(zero(), larger(broadcast(-126.0F), subtract(zero(), exponent)));
  return divide(broadcast(1.0F), add(broadcast(1.0F), power_of_two(bounded)));
}

inline Line gelu(const Line& x) { return multiply(x, gelu_share(x, multiply(x, x))); }

inline Line gelu_slope(const Line& x) {
  const Line square = multiply(x, x);
  const Line share = gelu_share(x, square);
  const Line slope = fused(broadcast(kGeluCurve), square, broadcast(kGeluSlope));
  const Line rise = multiply(share, subtract(broadcast(1.0F), share));
  return fused(rise, multiply(x, slope), share);
}

template <class Out, class In>
void store_rows(const TileRows<Out, In>& block, std::int64_t begin, std::int64_t end) {
  if (block.sums == nullptr) return;
  const std::int64_t columns = block.columns;
  const Row bias = block.bias != nullptr ? load_row(block.bias, columns) : Row{zero(), zero()};
  const auto put = [&](Out* to, const Row& row) {
    if (block.non_temporal && columns == kTileRows && reinterpret_cast<std::uintptr_t>(to) % 64 == 0) {
      stream(to, row.line[0]);
      stream(to + 16, row.line[1]);
    } else {
      store_row(to, columns, row);
    }
  };
  for (std::int64_t r = begin; r < std::min(end, block.rows); ++r) {
    const std::int64_t at = r * block.stride;
    Row row{load(block.sums + r * kTileRows), load(block.sums + r * kTileRows + 16)};
    const auto each = [&](const Row& other, auto combine) {
      for (int l = 0; l < 2; ++l) row.line[l] = combine(row.line[l], other.line[l]);
    };
    const auto plus = [](const Line& x, const Line& y) { return add(x, y); };
    if (block.bias != nullptr) each(bias, plus);
    if (block.addend != nullptr) each(load_row(block.addend + at, columns), plus);
    if (block.hidden != nullptr) {
      each(load_row(block.hidden + at, columns),
           [](const Line& x, const Line& hidden) { return multiply(x, gelu_slope(hidden)); });
    }
    put(block.c + at, row);
    if (block.active != nullptr) put(block.active + at, {gelu(row.line[0]), gelu(row.line[1])});
  }
}

class Blocks final : public TileBlocks {
 public:
  void pack(float* to, TileSide side, const TileSource<float>& from, std::int64_t first_row, std::int64_t first_k,
            PackedSteps steps) const override {
    pack_into<false>(to, side, from, first_row, first_k, steps);
  }
  void pack(float* to, TileSide side, const TileSource<std::uint16_t>& from, std::int64_t first_row,
            std::int64_t first_k, PackedSteps steps) const override {
    pack_into<false>(to, side, from, first_row, first_k, steps);
  }
  void pack(float* to, TileSide side, const TileSource<Float16Bits>& from, std::int64_t first_row, std::int64_t first_k,
            PackedSteps steps) const override {
    pack_into<false>(to, side, from, first_row, first_k, steps);
  }
  void pack(std::uint16_t* to, TileSide side, const TileSource<std::uint16_t>& from, std::int64_t first_row,
            std::int64_t first_k, PackedSteps steps) const override {
    if constexpr (KOZERO_LINES_OF_PAIRS) pack_into<true>(to, side, from, first_row, first_k, steps);
  }

  void store(const TileRows<float, float>& block, std::int64_t begin, std::int64_t end) const override {
    store_rows(block, begin, end);
  }
  void store(const TileRows<float, std::uint16_t>& block, std::int64_t begin, std::int64_t end) const override {
    store_rows(block, begin, end);
  }
  void store(const TileRows<std::uint16_t, std::uint16_t>& block, std::int64_t begin, std::int64_t end) const override {
    store_rows(block, begin, end);
  }
  void store(const TileRows<float, Float16Bits>& block, std::int64_t begin, std::int64_t end) const override {
    store_rows(block, begin, end);
  }
  void store(const TileRows<Float16Bits, Float16Bits>& block, std::int64_t begin, std::int64_t end) const override {
    store_rows(block, begin, end);
  }

  void finish_stores() const override { finish_streams(); }
};

}  // namespace

const TileBlocks& blocks() {
  static constexpr Blocks blocks;
  return blocks;
}

}  // namespace kozero::kernels::KOZERO_LINES
