// SPDX-FileCopyrightText: The KoZeRO authors
// SPDX-License-Identifier: Apache-2.0
// attention_tiles_backward.cpp: attention_host.hpp's backward in tiles, for each block of 32 keys over the queries that
// see it. A task has one key head of a document with all its query heads, one after the other, so that one thread sums
// dK and dV. For a query head, Q and dY are packed in both directions, and dQ^T is summed over the blocks of keys; P^T
// and dS^T exist for a chunk of queries.
#include <algorithm>

#include <kozero/core/precision.hpp>
#include "kernels/attention/host/attention_head.hpp"
#include "kernels/attention/host/attention_host.hpp"

namespace kozero::kernels {
namespace {

constexpr std::int64_t kChunk = 4;  // blocks of queries whose P^T and dS^T stay in the first-level cache

template <class Word>
struct BackwardScratch {
  Word *query, *dy;                // along, (T, D): right operands
  Word *query_across, *dy_across;  // across, (D, T): right operands
  QueryValues *shift, *delta;      // of each block
  Word *key, *value, *key_across;  // of one block of keys: left operands
  float *scores, *dp, *kept;       // S^T, dP^T, m of a block
  StorageOf<Word>*p, *ds;          // (keys, queries) of a chunk: left operands
  StorageOf<Word>* ds_right;       // of a block
  float* dquery;                   // dQ^T, (T, D) in blocks
  float *dkey, *dvalue;            // (T, D) in blocks
  std::int64_t extent;

  BackwardScratch(const HeadExtents<Word>& extents, float* memory) {
    const std::int64_t across = extents.dim_blocks * kTileElements;
    Scratch scratch = Scratch::of_thread(memory);
    for (Word** along : {&query, &dy}) *along = scratch.take<Word>(extents.blocks * extents.along());
    for (Word** all : {&query_across, &dy_across}) *all = scratch.take<Word>(extents.blocks * across);
    for (QueryValues** all : {&shift, &delta}) *all = scratch.take<QueryValues>(extents.blocks);
    for (Word** along : {&key, &value}) *along = scratch.take<Word>(extents.along());
    key_across = scratch.take<Word>(across);
    for (float** block : {&scores, &dp, &kept}) *block = scratch.take<float>(kTileElements);
    for (StorageOf<Word>** chunk : {&p, &ds}) *chunk = scratch.take<StorageOf<Word>>(kChunk * kTileElements);
    ds_right = scratch.take<StorageOf<Word>>(kTileElements);
    for (float** all : {&dquery, &dkey, &dvalue}) *all = scratch.take<float>(extents.blocks * across);
    extent = scratch.bytes() / static_cast<std::int64_t>(sizeof(float));
  }
};

/// A query head and its key head.
struct HeadPair {
  std::int64_t head, kv;
  bool first, last;  ///< of the query heads that add into the key head's sums
};

template <class T, class Word>
struct Backward {
  AttentionShape shape;
  DocumentSpan document;
  const TileUnit* unit;
  const AttentionBlocks* blocks;
  T* dqkv;
  const T* dy;
  const T* y;
  const float* logsumexp;
  const T* qkv;

  [[nodiscard]] HeadExtents<Word> head_extents() const { return {document.count, shape.head_dim}; }
  /// Of the document's first token.
  [[nodiscard]] std::int64_t row() const { return shape.row_of(document); }
  [[nodiscard]] HeadRows<T> rows(std::int64_t first) const { return {qkv + first, shape.qkv_columns()}; }

  /// Prepares query block i: its operands, and for each query the shift of its scores and delta.
  void pack_queries(const HeadPair& at, std::int64_t i, const BackwardScratch<Word>& scratch) const {
    const HeadExtents<Word> extents = head_extents();
    const std::int64_t output = shape.output(row(), at.head);
    const HeadRows<T> q = rows(shape.query(row(), at.head));
    const HeadRows<T> gradient{dy + output, shape.y_columns()};
    const std::int64_t next = extents.blocks * kTileElements;
    q.pack_along(unit->lines, scratch.query + i * extents.along(), TileSide::right, extents, i);
    gradient.pack_along(unit->lines, scratch.dy + i * extents.along(), TileSide::right, extents, i);
    q.pack_across(unit->lines, scratch.query_across + i * kTileElements, TileSide::right, extents, i, next);
    gradient.pack_across(unit->lines, scratch.dy_across + i * kTileElements, TileSide::right, extents, i, next);
    query_values(at, i, scratch.shift[i], scratch.delta[i]);
  }

  /// For query block i: log2(e) l, and delta = rowsum(dY * Y). Both are 0 past the last position.
  void query_values(const HeadPair& at, std::int64_t i, QueryValues& shift, QueryValues& delta) const {
    using Storage = StorageOf<T>;
    const std::int64_t exist = head_extents().rows_of(i);
    const float* const lse = logsumexp + shape.logsumexp_of(document, at.head) + i * kTileRows;
    for (std::int64_t r = 0; r < kTileRows; ++r) shift.of[r] = r < exist ? kLog2E * lse[r] : 0.0F;
    const std::int64_t first = shape.output(row() + i * kTileRows, at.head);
    blocks->row_products(delta, {reinterpret_cast<const Storage*>(y + first), shape.y_columns(), exist, shape.head_dim},
                         reinterpret_cast<const Storage*>(dy + first));
  }

  /// The blocks to prefetch after key block j and query block i: the next queries, which are packed with the first
  /// keys, or the next keys, which are packed with their first queries, after which three blocks of the gradient are
  /// complete.
  [[nodiscard]] Lookahead<T, Word> ahead_of(const HeadPair& at, std::int64_t j, std::int64_t i) const {
    const HeadExtents<Word> extents = head_extents();
    const std::int64_t query = shape.query(row(), at.head);
    const std::int64_t key = shape.key_of(row(), at.kv);
    const std::int64_t value = shape.value_of(row(), at.kv);
    const std::int64_t output = shape.output(row(), at.head);
    const std::int64_t columns = shape.qkv_columns();
    Lookahead<T, Word> ahead(extents, 3 + extents.dim_blocks);
    if (j == 0) ahead.add(i + 1, {rows(query), {dy + output, shape.y_columns()}, {y + output, shape.y_columns()}});
    if (i == j) {
      ahead.add(j + 1, {rows(key), rows(value)});
      ahead.add(j, {{dqkv + query, columns}, {dqkv + key, columns}, {dqkv + value, columns}});
    }
    return ahead;
  }

  /// P^T and dS^T of key block j and query block i, the latter into block `slot` of the chunk; dQ^T += K^T dS^T.
  void add_to_queries(const HeadPair& at, std::int64_t j, std::int64_t i, std::int64_t slot,
                      const BackwardScratch<Word>& scratch, const TileUnitInUse& tiles) const {
    const HeadExtents<Word> extents = head_extents();
    if (j == 0) pack_queries(at, i, scratch);
    Lookahead<T, Word> ahead = ahead_of(at, j, i);
    ahead.some();
    tiles.product({scratch.scores, nullptr, scratch.key, scratch.query + i * extents.along(), extents.dim_steps});
    ahead.some();
    tiles.product({scratch.dp, nullptr, scratch.value, scratch.dy + i * extents.along(), extents.dim_steps});
    ahead.some();
    const float* const kept = kept_block(scratch.kept, shape, document, at.head, j, i);
    blocks->pack_gradients({scratch.p + slot * kTileElements, scratch.ds + slot * kTileElements, scratch.ds_right},
                           {scratch.scores, kept, i == j}, scratch.dp, kLog2E * shape.scale(), scratch.shift[i],
                           scratch.delta[i]);
    const auto* const ds = reinterpret_cast<const Word*>(scratch.ds_right);
    for (std::int64_t c = 0; c < extents.dim_blocks; ++c) {
      float* const sum = scratch.dquery + (i * extents.dim_blocks + c) * kTileElements;
      ahead.some();
      tiles.product(
          {sum, j > 0 ? sum : nullptr, scratch.key_across + c * kTileElements, ds, HeadExtents<Word>::kBlockSteps});
    }
  }

  /// dV += P^T dY and dK += dS^T Q, of key block j and query blocks [first, end).
  void add_to_keys(std::int64_t j, std::int64_t first, std::int64_t end, bool overwrite,
                   const BackwardScratch<Word>& scratch, const TileUnitInUse& tiles) const {
    const HeadExtents<Word> extents = head_extents();
    const std::int64_t steps = (end - first) * HeadExtents<Word>::kBlockSteps;
    const auto* const p = reinterpret_cast<const Word*>(scratch.p);
    const auto* const ds = reinterpret_cast<const Word*>(scratch.ds);
    for (std::int64_t c = 0; c < extents.dim_blocks; ++c) {
      const std::int64_t sum = (j * extents.dim_blocks + c) * kTileElements;
      const std::int64_t operand = (c * extents.blocks + first) * kTileElements;
      tiles.product(
          {scratch.dvalue + sum, !overwrite ? scratch.dvalue + sum : nullptr, p, scratch.dy_across + operand, steps});
      tiles.product(
          {scratch.dkey + sum, !overwrite ? scratch.dkey + sum : nullptr, ds, scratch.query_across + operand, steps});
    }
  }

  /// The contributions of one query head to dQ, dK and dV.
  void query_head(const HeadPair& at, const BackwardScratch<Word>& scratch, const TileUnitInUse& tiles) const {
    const HeadExtents<Word> extents = head_extents();
    const HeadRows<T> key = rows(shape.key_of(row(), at.kv));
    const HeadRows<T> value = rows(shape.value_of(row(), at.kv));
    for (std::int64_t j = 0; j < extents.blocks; ++j) {
      key.pack_along(unit->lines, scratch.key, TileSide::left, extents, j);
      value.pack_along(unit->lines, scratch.value, TileSide::left, extents, j);
      key.pack_across(unit->lines, scratch.key_across, TileSide::left, extents, j, kTileElements);
      for (std::int64_t first = j; first < extents.blocks; first += kChunk) {
        const std::int64_t end = std::min(first + kChunk, extents.blocks);
        for (std::int64_t i = first; i < end; ++i) add_to_queries(at, j, i, i - first, scratch, tiles);
        add_to_keys(j, first, end, at.first && first == j, scratch, tiles);
      }
      store_queries(at, j, scratch);  // after their last key
      if (at.last) store_keys(at, j, scratch);
    }
  }

  void store_queries(const HeadPair& at, std::int64_t i, const BackwardScratch<Word>& scratch) const {
    const HeadExtents<Word> extents = head_extents();
    QueryValues scale;
    std::fill(scale.of, scale.of + kTileRows, shape.scale());
    for (std::int64_t c = 0; c < extents.dim_blocks; ++c) {
      T* const head = dqkv + shape.query(row(), at.head);
      blocks->store_transposed(part_of_head(head, shape.qkv_columns(), extents, i, c),
                               scratch.dquery + (i * extents.dim_blocks + c) * kTileElements, scale);
    }
  }

  void store_keys(const HeadPair& at, std::int64_t j, const BackwardScratch<Word>& scratch) const {
    const HeadExtents<Word> extents = head_extents();
    const std::int64_t columns = shape.qkv_columns();
    T* const key = dqkv + shape.key_of(row(), at.kv);
    T* const value = dqkv + shape.value_of(row(), at.kv);
    for (std::int64_t c = 0; c < extents.dim_blocks; ++c) {
      const std::int64_t sum = (j * extents.dim_blocks + c) * kTileElements;
      blocks->store_block(part_of_head(key, columns, extents, j, c), scratch.dkey + sum, shape.scale());
      blocks->store_block(part_of_head(value, columns, extents, j, c), scratch.dvalue + sum, 1.0F);
    }
  }

  void operator()(std::int64_t kv, float* memory) const {
    const BackwardScratch<Word> scratch(head_extents(), memory);
    const TileUnitInUse tiles(*unit);
    for (std::int64_t member = 0; member < shape.group(); ++member) {
      query_head({kv * shape.group() + member, kv, member == 0, member + 1 == shape.group()}, scratch, tiles);
    }
  }
};

}  // namespace

template <class T>
std::int64_t attention_tiles_backward_scratch(const TileUnit& unit, const AttentionShape& shape) {
  return with_word<T>(unit, [&](auto word) {
    return BackwardScratch<decltype(word)>({shape.positions, shape.head_dim}, nullptr).extent;
  });
}

template <class Space, class T>
void attention_tiles_backward(const Space& space, const TileUnit& unit, Matrix<T> dqkv, MatrixIn<T> dy, MatrixIn<T> y,
                              Matrix<const float> logsumexp, MatrixIn<T> qkv, const AttentionShape& shape,
                              Vector<float> workspace) {
  require_attention(shape, y, logsumexp, qkv);
  require_attention(shape, dy, logsumexp, dqkv);
  with_word<T>(unit, [&](auto word) {
    const Backward<T, decltype(word)> of_any{shape,       {},        &unit,    &attention_blocks(unit.lines),
                                             dqkv.data(), dy.data(), y.data(), logsumexp.data(),
                                             qkv.data()};
    for_each_task(space, "kozero::attention_backward", shape.num_documents() * shape.kv_heads,
                  attention_tiles_backward_scratch<T>(unit, shape), workspace, [=](std::int64_t index, float* scratch) {
                    auto backward = of_any;
                    backward.document = shape.document(index / shape.kv_heads);
                    backward(index % shape.kv_heads, scratch);
                  });
  });
}

#define KOZERO_INSTANTIATE(T)                                                                                   \
  template std::int64_t attention_tiles_backward_scratch<T>(const TileUnit&, const AttentionShape&);            \
  template void attention_tiles_backward<Device, T>(const Device&, const TileUnit&, Matrix<T>, Matrix<const T>, \
                                                    Matrix<const T>, Matrix<const float>, Matrix<const T>,      \
                                                    const AttentionShape&, Vector<float>);
KOZERO_FOR_STORED_TYPES(KOZERO_INSTANTIATE)

}  // namespace kozero::kernels
