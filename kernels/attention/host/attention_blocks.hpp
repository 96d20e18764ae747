// SPDX-FileCopyrightText: The KoZeRO authors
// SPDX-License-Identifier: Apache-2.0
// attention_blocks.hpp: attention's operations on blocks of 32 keys by 32 queries between two tile products.
//   p(j,i) = 2^(c s(j,i) - shift(i)) for j <= i, else 0
//   c = log2(e) / sqrt(D), so that 2^(c s) = exp(s / sqrt(D))
//   forward:   shift(i) = c max_j s(j,i)     sum(i) += sum_j p(j,i)
//   backward:  shift(i) = log2(e) l(i)       ds(j,i) = p(j,i) (m(j,i) dp(j,i) - delta(i))
// A block is in the order of tile_product.hpp, with one row per key: the numbers of a query are one lane, and rounded
// blocks are operands of the next product without a transposition (tile_packing.hpp has their orders). An operand is of
// floats, or for units that multiply them of pairs of bf16; a matrix is of floats, bf16 or fp16. Arrays begin on a
// cache line. Compiled once for each kind of vector instructions (lines.hpp). Milakov, Gimelshein, "Online normalizer
// calculation for softmax", 2018, arXiv:1805.02867.
#pragma once
#include <cstdint>

#include "kernels/matmul/host/tile_product.hpp"

namespace kozero::kernels {

/// One number for each of 32 queries.
struct alignas(64) QueryValues {
  float of[kTileRows];
};

/// The softmax of 32 queries over the keys seen so far.
struct RunningSoftmax {
  QueryValues largest;     ///< max s
  QueryValues shift;       ///< c max s
  QueryValues sum;         ///< of 2^(c s - shift)
  QueryValues correction;  ///< factor for sums with the previous shift
};

/// The scores of a block. On the diagonal, where keys and queries are the same positions, a query sees no later key.
struct ScoreBlock {
  const float* scores;
  const float* kept;  ///< m of dropout, also a block; nullptr without dropout
  bool diagonal;
};

/// The places of backward's operands: the left ones have keys as rows and queries as k, the right one the reverse.
template <class Storage>
struct GradientOperands {
  Storage* p_left;
  Storage* ds_left;
  Storage* ds_right;
};

/// Rows of a matrix, at most 32.
template <class Storage>
struct MatrixRows {
  const Storage* data;
  std::int64_t stride, rows, columns;
};

/// A part of a row-major matrix, at most 32 by 32.
template <class Storage>
struct MatrixPart {
  Storage* data;
  std::int64_t stride, rows, columns;
};

/// Operands are of float or, as pairs in the lines of units that multiply them, of std::uint16_t; matrices of these or
/// of Float16Bits.
class AttentionBlocks {
 public:
  /// largest(i) = max(largest(i), max_j s(j,i)).
  virtual void raise_largest(QueryValues& largest, const ScoreBlock& block) const = 0;

  /// Updates shift, sum and correction to the raised largest scores.
  virtual void advance(RunningSoftmax& softmax, float c) const = 0;

  // Adds p to the softmax's sums, and packs m p as a right operand: rows are queries, k is keys.
  virtual void pack_probabilities(float* right, RunningSoftmax& softmax, const ScoreBlock& block, float c) const = 0;
  virtual void pack_probabilities(std::uint16_t* right, RunningSoftmax& softmax, const ScoreBlock& block,
                                  float c) const = 0;

  // Packs m p and ds, from the scores and dp, the gradient of m p.
  virtual void pack_gradients(const GradientOperands<float>& to, const ScoreBlock& block, const float* dp, float c,
                              const QueryValues& shift, const QueryValues& delta) const = 0;
  virtual void pack_gradients(const GradientOperands<std::uint16_t>& to, const ScoreBlock& block, const float* dp,
                              float c, const QueryValues& shift, const QueryValues& delta) const = 0;

  // sum(i) = a(i,:) . b(i,:), and 0 past the last row; b has the rows of a.
  virtual void row_products(QueryValues& sum, const MatrixRows<float>& a, const float* b) const = 0;
  virtual void row_products(QueryValues& sum, const MatrixRows<std::uint16_t>& a, const std::uint16_t* b) const = 0;
  virtual void row_products(QueryValues& sum, const MatrixRows<Float16Bits>& a, const Float16Bits* b) const = 0;

  /// block(r,i) *= factor(i).
  virtual void scale_columns(float* block, const QueryValues& factor) const = 0;

  // to(r,d) = factor block(r,d).
  virtual void store_block(const MatrixPart<float>& to, const float* block, float factor) const = 0;
  virtual void store_block(const MatrixPart<std::uint16_t>& to, const float* block, float factor) const = 0;
  virtual void store_block(const MatrixPart<Float16Bits>& to, const float* block, float factor) const = 0;

  // to(i,d) = factor(i) block(d,i).
  virtual void store_transposed(const MatrixPart<float>& to, const float* block, const QueryValues& factor) const = 0;
  virtual void store_transposed(const MatrixPart<std::uint16_t>& to, const float* block,
                                const QueryValues& factor) const = 0;
  virtual void store_transposed(const MatrixPart<Float16Bits>& to, const float* block,
                                const QueryValues& factor) const = 0;

 protected:
  ~AttentionBlocks() = default;
};

const AttentionBlocks& attention_blocks(LineKind lines);

}  // namespace kozero::kernels

// For each kind of lines what attention_blocks.cpp defines.
#define KOZERO_DECLARE(kind)                 \
  namespace kozero::kernels::kind {          \
  const AttentionBlocks& attention_blocks(); \
  }
KOZERO_FOR_LINES(KOZERO_DECLARE)
#undef KOZERO_DECLARE
