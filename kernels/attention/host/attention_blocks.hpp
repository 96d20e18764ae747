// SPDX-FileCopyrightText: The KoZeRO authors
// SPDX-License-Identifier: Apache-2.0
// attention_blocks.hpp: attention's operations on blocks of 32 keys by 32 queries between two tile products.
//   p(j,i) = 2^(c s(j,i) - shift(i)) for j <= i, else 0
//   c = log2(e) / sqrt(D), so that 2^(c s) = exp(s / sqrt(D))
//   forward:   shift(i) = c max_j s(j,i)     sum(i) += sum_j p(j,i)
//   backward:  shift(i) = log2(e) l(i)       ds(j,i) = p(j,i) (m(j,i) dp(j,i) - delta(i))
// A block is in the order of tile_product.hpp, with one row per key: the numbers of a query are one lane, and rounded
// blocks are operands of the next product without a transposition (tile_packing.hpp has their orders). Storage is the
// type of T in memory: float, or the 16 bits of bf16 or fp16; an operand of fp16 is in float. Arrays begin on a cache
// line. Needs AVX-512 (F, BW; for 16 bits also BF16). Milakov, Gimelshein, "Online normalizer calculation for softmax",
// 2018, arXiv:1805.02867.
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

/// largest(i) = max(largest(i), max_j s(j,i)).
void raise_largest(QueryValues& largest, const ScoreBlock& block);

/// Updates shift, sum and correction to the raised largest scores.
void advance(RunningSoftmax& softmax, float c);

/// Adds p to the softmax's sums, and packs m p as a right operand: rows are queries, k is keys.
template <class Storage>
void pack_probabilities(Storage* right, RunningSoftmax& softmax, const ScoreBlock& block, float c);

/// The places of backward's operands: the left ones have keys as rows and queries as k, the right one the reverse.
template <class Storage>
struct GradientOperands {
  Storage* p_left;
  Storage* ds_left;
  Storage* ds_right;
};

/// Packs m p and ds, from the scores and dp, the gradient of m p.
template <class Storage>
void pack_gradients(const GradientOperands<Storage>& to, const ScoreBlock& block, const float* dp, float c,
                    const QueryValues& shift, const QueryValues& delta);

/// Rows of a matrix, at most 32.
template <class Storage>
struct MatrixRows {
  const Storage* data;
  std::int64_t stride, rows, columns;
};

/// sum(i) = a(i,:) . b(i,:), and 0 past the last row; b has the rows of a.
template <class Storage>
void row_products(QueryValues& sum, const MatrixRows<Storage>& a, const Storage* b);

/// block(r,i) *= factor(i).
void scale_columns(float* block, const QueryValues& factor);

/// A part of a row-major matrix, at most 32 by 32.
template <class Storage>
struct MatrixPart {
  Storage* data;
  std::int64_t stride, rows, columns;
};

/// to(r,d) = factor block(r,d).
template <class Storage>
void store_block(const MatrixPart<Storage>& to, const float* block, float factor);

/// to(i,d) = factor(i) block(d,i).
template <class Storage>
void store_transposed(const MatrixPart<Storage>& to, const float* block, const QueryValues& factor);

}  // namespace kozero::kernels
