// SPDX-FileCopyrightText: The KoZeRO authors
// SPDX-License-Identifier: Apache-2.0
// attention_blocks.cpp: attention_blocks.hpp in lines, two keys at a time, each as two lines of 16 queries, since a
// pair of bf16 in an operand is two keys. Compiled for each kind of lines (lines.hpp): call only on a processor that
// has them.
#include "kernels/attention/host/attention_blocks.hpp"

#include <algorithm>

#include "kernels/matmul/host/lines.hpp"

namespace kozero::kernels::KOZERO_LINES {
namespace {

constexpr int kKeys = 2;   // at a time
constexpr int kLines = 2;  // of 16 queries

/// 32 numbers, one per query.
struct Queries {
  Line line[kLines];
};

inline Queries load_queries(const float* from) { return {load(from), load(from + kLineFloats)}; }
inline Queries load_queries(const QueryValues& values) { return load_queries(values.of); }
inline void store_queries(float* to, const Queries& x) {
  store(to, x.line[0]);
  store(to + kLineFloats, x.line[1]);
}
inline Queries product(const Queries& x, const Queries& y) {
  return {multiply(x.line[0], y.line[0]), multiply(x.line[1], y.line[1])};
}

/// The first of 16 queries from `line` on that sees a key of the block.
inline int first_seeing(const ScoreBlock& block, int key, int line) { return block.diagonal ? key - 16 * line : 0; }

/// p of one key.
inline Queries probabilities(const ScoreBlock& block, int key, const Line& c, const Queries& shift) {
  const Queries s = load_queries(block.scores + key * kTileRows);
  Queries p;
  for (int l = 0; l < kLines; ++l) {
    const Line power = power_of_two(fused(c, s.line[l], subtract(zero(), shift.line[l])));
    p.line[l] = from_lane(power, first_seeing(block, key, l));
  }
  return p;
}

// The orders of a block as an operand: keys are the rows of a left operand, and k of a right operand.
inline void store_left(float* block, int key, const Queries& x) {
  store(block + key * kStepWords, x.line[0]);
  store(block + (kTileRows + key) * kStepWords, x.line[1]);
}
inline void store_right(float* block, int key, const Queries (&x)[kKeys]) {
  store_queries(block + key * kTileRows, x[0]);
  store_queries(block + (key + 1) * kTileRows, x[1]);
}
#if KOZERO_LINES_OF_PAIRS
inline void store_left(std::uint16_t* block, int key, const Queries& x) {
  store(block + key * kTileRows, kLineFloats, exchanged(x.line[0]));
  store(block + key * kTileRows + kLineFloats, kLineFloats, exchanged(x.line[1]));
}
inline void store_right(std::uint16_t* block, int key, const Queries (&x)[kKeys]) {
  // Words 16, 0, 17, 1, ...: the two keys of a query are neighbors.
  const __m512i pairs =
      _mm512_add_epi32(_mm512_set1_epi32(16),
                       _mm512_mullo_epi32(_mm512_set1_epi32(0x10001),
                                          _mm512_set_epi32(15, 14, 13, 12, 11, 10, 9, 8, 7, 6, 5, 4, 3, 2, 1, 0)));
  for (int l = 0; l < kLines; ++l) {
    const auto rounded = reinterpret_cast<__m512i>(_mm512_cvtne2ps_pbh(x[1].line[l].of, x[0].line[l].of));
    _mm512_store_si512(block + (key / 2 * kTileRows + 16 * l) * 2, _mm512_permutexvar_epi16(pairs, rounded));
  }
}
#endif

template <class Storage>
void probabilities_into(Storage* right, RunningSoftmax& softmax, const ScoreBlock& block, float c) {
  const Queries shift = load_queries(softmax.shift);
  Queries sum = load_queries(softmax.sum);
  for (int key = 0; key < kTileRows; key += kKeys) {
    Queries p[kKeys];
    for (int i = 0; i < kKeys; ++i) {
      p[i] = probabilities(block, key + i, broadcast(c), shift);
      for (int l = 0; l < kLines; ++l) sum.line[l] = add(sum.line[l], p[i].line[l]);
      if (block.kept != nullptr) p[i] = product(p[i], load_queries(block.kept + (key + i) * kTileRows));
    }
    store_right(right, key, p);
  }
  store_queries(softmax.sum.of, sum);
}

template <class Storage>
void gradients_into(const GradientOperands<Storage>& to, const ScoreBlock& block, const float* dp, float c,
                    const QueryValues& shift, const QueryValues& delta) {
  const Queries shifts = load_queries(shift);
  const Queries deltas = load_queries(delta);
  for (int key = 0; key < kTileRows; key += kKeys) {
    Queries ds[kKeys];
    for (int i = 0; i < kKeys; ++i) {
      const Queries p = probabilities(block, key + i, broadcast(c), shifts);
      Queries gradient = load_queries(dp + (key + i) * kTileRows);
      Queries kept_p = p;
      if (block.kept != nullptr) {
        const Queries kept = load_queries(block.kept + (key + i) * kTileRows);
        kept_p = product(p, kept);
        gradient = product(gradient, kept);
      }
      for (int l = 0; l < kLines; ++l) {
        const Line times_p = multiply(p.line[l], subtract(gradient.line[l], deltas.line[l]));
        ds[i].line[l] = from_lane(times_p, first_seeing(block, key + i, l));
      }
      store_left(to.p_left, key + i, kept_p);
      store_left(to.ds_left, key + i, ds[i]);
    }
    store_right(to.ds_right, key, ds);
  }
}

template <class Storage>
void products_of_rows(QueryValues& sum, const MatrixRows<Storage>& a, const Storage* b) {
  for (std::int64_t r = 0; r < kTileRows; ++r) {
    Line lanes = zero();
    for (std::int64_t d = 0; r < a.rows && d < a.columns; d += kLineFloats) {
      const std::int64_t at = r * a.stride + d;
      lanes = fused(load(a.data + at, a.columns - d), load(b + at, a.columns - d), lanes);
    }
    sum.of[r] = sum_of(lanes);
  }
}

template <class Storage>
void block_into(const MatrixPart<Storage>& to, const float* block, float factor) {
  for (std::int64_t r = 0; r < to.rows; ++r) {
    for (std::int64_t d = 0; d < to.columns; d += kLineFloats) {
      store(to.data + r * to.stride + d, to.columns - d, multiply(broadcast(factor), load(block + r * kTileRows + d)));
    }
  }
}

template <class Storage>
void transposed_into(const MatrixPart<Storage>& to, const float* block, const QueryValues& factor) {
  const Queries factors = load_queries(factor);
  for (std::int64_t d = 0; d < to.columns; d += kLineFloats) {
    for (int l = 0; l < kLines; ++l) {
      Line lines[16];
      for (int i = 0; i < 16; ++i) {
        lines[i] = multiply(load(block + (d + i) * kTileRows + kLineFloats * l), factors.line[l]);
      }
      transpose(lines);
      const std::int64_t first = kLineFloats * l;
      for (std::int64_t i = 0; i < std::min<std::int64_t>(16, to.rows - first); ++i) {
        store(to.data + (first + i) * to.stride + d, to.columns - d, lines[i]);
      }
    }
  }
}

class Blocks final : public AttentionBlocks {
 public:
  void raise_largest(QueryValues& largest, const ScoreBlock& block) const override {
    Queries most = load_queries(largest);
    for (int key = 0; key < kTileRows; ++key) {
      const Queries s = load_queries(block.scores + key * kTileRows);
      for (int l = 0; l < kLines; ++l) {
        most.line[l] = larger_from(most.line[l], s.line[l], first_seeing(block, key, l));
      }
    }
    store_queries(largest.of, most);
  }

  void advance(RunningSoftmax& softmax, float c) const override {
    const Queries most = load_queries(softmax.largest);
    const Queries before = load_queries(softmax.shift);
    Queries shift;
    Queries correction;
    for (int l = 0; l < kLines; ++l) {
      shift.line[l] = multiply(broadcast(c), most.line[l]);
      correction.line[l] = power_of_two(subtract(before.line[l], shift.line[l]));
    }
    store_queries(softmax.shift.of, shift);
    store_queries(softmax.correction.of, correction);
    store_queries(softmax.sum.of, product(load_queries(softmax.sum), correction));
  }

  void pack_probabilities(float* right, RunningSoftmax& softmax, const ScoreBlock& block, float c) const override {
    probabilities_into(right, softmax, block, c);
  }
  void pack_probabilities(std::uint16_t* right, RunningSoftmax& softmax, const ScoreBlock& block,
                          float c) const override {
    if constexpr (KOZERO_LINES_OF_PAIRS) probabilities_into(right, softmax, block, c);
  }

  void pack_gradients(const GradientOperands<float>& to, const ScoreBlock& block, const float* dp, float c,
                      const QueryValues& shift, const QueryValues& delta) const override {
    gradients_into(to, block, dp, c, shift, delta);
  }
  void pack_gradients(const GradientOperands<std::uint16_t>& to, const ScoreBlock& block, const float* dp, float c,
                      const QueryValues& shift, const QueryValues& delta) const override {
    if constexpr (KOZERO_LINES_OF_PAIRS) gradients_into(to, block, dp, c, shift, delta);
  }

  void row_products(QueryValues& sum, const MatrixRows<float>& a, const float* b) const override {
    products_of_rows(sum, a, b);
  }
  void row_products(QueryValues& sum, const MatrixRows<std::uint16_t>& a, const std::uint16_t* b) const override {
    products_of_rows(sum, a, b);
  }
  void row_products(QueryValues& sum, const MatrixRows<Float16Bits>& a, const Float16Bits* b) const override {
    products_of_rows(sum, a, b);
  }

  void scale_columns(float* block, const QueryValues& factor) const override {
    const Queries factors = load_queries(factor);
    for (int r = 0; r < kTileRows; ++r) {
      store_queries(block + r * kTileRows, product(load_queries(block + r * kTileRows), factors));
    }
  }

  void store_block(const MatrixPart<float>& to, const float* block, float factor) const override {
    block_into(to, block, factor);
  }
  void store_block(const MatrixPart<std::uint16_t>& to, const float* block, float factor) const override {
    block_into(to, block, factor);
  }
  void store_block(const MatrixPart<Float16Bits>& to, const float* block, float factor) const override {
    block_into(to, block, factor);
  }

  void store_transposed(const MatrixPart<float>& to, const float* block, const QueryValues& factor) const override {
    transposed_into(to, block, factor);
  }
  void store_transposed(const MatrixPart<std::uint16_t>& to, const float* block,
                        const QueryValues& factor) const override {
    transposed_into(to, block, factor);
  }
  void store_transposed(const MatrixPart<Float16Bits>& to, const float* block,
                        const QueryValues& factor) const override {
    transposed_into(to, block, factor);
  }
};

}  // namespace

const AttentionBlocks& attention_blocks() {
  static constexpr Blocks blocks;
  return blocks;
}

}  // namespace kozero::kernels::KOZERO_LINES
