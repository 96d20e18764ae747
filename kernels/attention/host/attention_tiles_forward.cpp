// SPDX-FileCopyrightText: The KoZeRO authors
// SPDX-License-Identifier: Apache-2.0
// attention_tiles_forward.cpp: attention_host.hpp's forward in tiles, for each strip of 32 queries over chunks of keys.
// A task has the query heads of one key head of a document, whose keys and values it packs once, or a part of their
// strips if there are few key heads for the threads. A strip's sums are rescaled when its largest score grows from
// chunk to chunk.
#include <algorithm>
#include <limits>

#include <kozero/core/portable_math.hpp>
#include <kozero/core/precision.hpp>
#include "kernels/attention/host/attention_head.hpp"
#include "kernels/attention/host/attention_host.hpp"

namespace kozero::kernels {
namespace {

constexpr std::int64_t kChunk = 4;  // blocks of keys whose scores stay in the first-level cache

template <class Word>
struct ForwardScratch {
  Word* key;           // along, (T, D)
  Word* value;         // across, (D, T)
  Word* query;         // along, a block
  StorageOf<Word>* p;  // across, a chunk
  float* scores;       // S^T of a chunk
  float* kept;         // m of a block
  float* output;       // Y^T of a strip
  RunningSoftmax* softmax;
  std::int64_t extent;

  ForwardScratch(const HeadExtents<Word>& extents, float* memory) {
    Scratch scratch = Scratch::of_thread(memory);
    key = scratch.take<Word>(extents.blocks * extents.along());
    value = scratch.take<Word>(extents.blocks * extents.dim_blocks * kTileElements);
    query = scratch.take<Word>(extents.along());
    p = scratch.take<StorageOf<Word>>(kChunk * kTileElements);
    scores = scratch.take<float>(kChunk * kTileElements);
    kept = scratch.take<float>(kTileElements);
    output = scratch.take<float>(extents.dim_blocks * kTileElements);
    softmax = scratch.take<RunningSoftmax>(1);
    extent = scratch.bytes() / static_cast<std::int64_t>(sizeof(float));
  }
};

/// Query block `block` of a query head.
struct QueryStrip {
  std::int64_t head, block;
};

template <class T, class Word>
struct Forward {
  AttentionShape shape;
  DocumentSpan document;
  const TileUnit* unit;
  const AttentionBlocks* blocks;
  T* y;
  float* logsumexp;
  const T* qkv;

  [[nodiscard]] HeadExtents<Word> head_extents() const { return {document.count, shape.head_dim}; }
  /// Of the document's first token.
  [[nodiscard]] std::int64_t row() const { return shape.row_of(document); }
  [[nodiscard]] HeadRows<T> rows(std::int64_t first) const { return {qkv + first, shape.qkv_columns()}; }
  /// log2(e) / sqrt(D).
  [[nodiscard]] float exponent() const { return kLog2E * shape.scale(); }

  /// P^T of key blocks [first, end), as an operand; adds them to the softmax.
  void probabilities(const QueryStrip& strip, std::int64_t first, std::int64_t end, const ForwardScratch<Word>& scratch,
                     const TileUnitInUse& tiles, Lookahead<T, Word>& ahead) const {
    const HeadExtents<Word> extents = head_extents();
    RunningSoftmax& softmax = *scratch.softmax;
    const auto scores_of = [&](std::int64_t j) { return scratch.scores + (j - first) * kTileElements; };
    for (std::int64_t j = first; j < end; ++j) {
      tiles.product({scores_of(j), nullptr, scratch.key + j * extents.along(), scratch.query, extents.dim_steps});
      ahead.some();
      blocks->raise_largest(softmax.largest, {scores_of(j), nullptr, j == strip.block});
    }
    blocks->advance(softmax, exponent());
    for (std::int64_t j = first; j < end; ++j) {
      ahead.some();
      const float* const kept = kept_block(scratch.kept, shape, document, strip.head, j, strip.block);
      blocks->pack_probabilities(scratch.p + (j - first) * kTileElements, softmax,
                                 {scores_of(j), kept, j == strip.block}, exponent());
    }
  }

  /// Y^T += V^T P^T of key blocks [first, end).
  void add_values(std::int64_t first, std::int64_t end, const ForwardScratch<Word>& scratch, const TileUnitInUse& tiles,
                  Lookahead<T, Word>& ahead) const {
    const HeadExtents<Word> extents = head_extents();
    for (std::int64_t c = 0; c < extents.dim_blocks; ++c) {
      float* const output = scratch.output + c * kTileElements;
      if (first > 0) blocks->scale_columns(output, scratch.softmax->correction);
      const Word* const values = scratch.value + (c * extents.blocks + first) * kTileElements;
      const auto* const p = reinterpret_cast<const Word*>(scratch.p);
      ahead.some();
      tiles.product({output, first > 0 ? output : nullptr, values, p, (end - first) * HeadExtents<Word>::kBlockSteps});
    }
  }

  /// Writes y and the logsumexp of a strip.
  void finish(const QueryStrip& strip, const ForwardScratch<Word>& scratch) const {
    const HeadExtents<Word> extents = head_extents();
    const RunningSoftmax& softmax = *scratch.softmax;
    float* const lse = logsumexp + shape.logsumexp_of(document, strip.head) + strip.block * kTileRows;
    QueryValues inverse;
    for (std::int64_t i = 0; i < kTileRows; ++i) inverse.of[i] = 1.0F / softmax.sum.of[i];
    for (std::int64_t i = 0; i < extents.rows_of(strip.block); ++i) {
      lse[i] = shape.scale() * softmax.largest.of[i] + portable_log(softmax.sum.of[i]);
    }
    T* const head = y + shape.output(row(), strip.head);
    for (std::int64_t c = 0; c < extents.dim_blocks; ++c) {
      blocks->store_transposed(part_of_head(head, shape.y_columns(), extents, strip.block, c),
                               scratch.output + c * kTileElements, inverse);
    }
  }

  void strip(const QueryStrip& strip, const ForwardScratch<Word>& scratch, const TileUnitInUse& tiles) const {
    constexpr float kNone = -std::numeric_limits<float>::infinity();
    const HeadExtents<Word> extents = head_extents();
    RunningSoftmax& softmax = *scratch.softmax;
    for (std::int64_t i = 0; i < kTileRows; ++i) {
      softmax.largest.of[i] = kNone;
      softmax.shift.of[i] = kNone;
      softmax.sum.of[i] = 0.0F;
    }
    const HeadRows<T> query = rows(shape.query(row(), strip.head));
    query.pack_along(unit->lines, scratch.query, TileSide::right, extents, strip.block);
    const std::int64_t kv = strip.head / shape.group();
    const std::int64_t calls = (2 + extents.dim_blocks) * (strip.block / kChunk + 1) + 2 * strip.block;
    Lookahead<T, Word> ahead(extents, calls);
    ahead.add(strip.block + 1, {query,
                                rows(shape.key_of(row(), kv)),
                                rows(shape.value_of(row(), kv)),
                                {y + shape.output(row(), strip.head), shape.y_columns()}});
    for (std::int64_t first = 0; first <= strip.block; first += kChunk) {
      const std::int64_t end = std::min(first + kChunk, strip.block + 1);
      probabilities(strip, first, end, scratch, tiles, ahead);
      add_values(first, end, scratch, tiles, ahead);
    }
    finish(strip, scratch);
  }

  /// Packs block j of a key head.
  void pack_keys(std::int64_t kv, std::int64_t j, const ForwardScratch<Word>& scratch) const {
    const HeadExtents<Word> extents = head_extents();
    const HeadRows<T> key = rows(shape.key_of(row(), kv));
    const HeadRows<T> value = rows(shape.value_of(row(), kv));
    key.pack_along(unit->lines, scratch.key + j * extents.along(), TileSide::left, extents, j);
    value.pack_across(unit->lines, scratch.value + j * kTileElements, TileSide::left, extents, j,
                      extents.blocks * kTileElements);
  }

  /// Every `parts`-th strip of a key head's query heads, from the `part`-th on. Short strips come first, so that
  /// packing of keys and values, and prefetching, are spread between products.
  void operator()(std::int64_t kv, std::int64_t part, std::int64_t parts, float* memory) const {
    const HeadExtents<Word> extents = head_extents();
    const ForwardScratch<Word> scratch(extents, memory);
    const TileUnitInUse tiles(*unit);
    const std::int64_t group = shape.group();
    const std::int64_t strips = extents.blocks * group;
    std::int64_t packed = 0;
    for (std::int64_t s = part; s < strips; s += parts) {
      for (; packed <= s / group; ++packed) pack_keys(kv, packed, scratch);
      strip({kv * group + s % group, s / group}, scratch, tiles);
    }
  }
};

/// The number of parts of the strips of a key head with `positions` positions: four tasks per thread, if all documents
/// had this length, balance the load.
std::int64_t parts_of_head(const AttentionShape& shape, std::int64_t positions, std::int64_t threads) {
  const std::int64_t strips = HeadExtents<float>(positions, shape.head_dim).blocks * shape.group();
  const std::int64_t wanted = 4 * threads * positions / std::max<std::int64_t>(shape.rows() * shape.kv_heads, 1);
  return std::clamp<std::int64_t>(wanted, 1, std::max<std::int64_t>(strips, 1));
}

}  // namespace

template <class T>
std::int64_t attention_tiles_forward_scratch(const TileUnit& unit, const AttentionShape& shape) {
  return with_word<T>(unit, [&](auto word) {
    return ForwardScratch<decltype(word)>({shape.positions, shape.head_dim}, nullptr).extent;
  });
}

template <class Space, class T>
void attention_tiles_forward(const Space& space, const TileUnit& unit, Matrix<T> y, Matrix<float> logsumexp,
                             MatrixIn<T> qkv, const AttentionShape& shape, Vector<float> workspace) {
  require_attention(shape, y, logsumexp, qkv);
  if (shape.positions == 0) return;
  const std::int64_t threads = space.concurrency();
  const std::int64_t most = parts_of_head(shape, shape.longest_document(), threads);
  with_word<T>(unit, [&](auto word) {
    const Forward<T, decltype(word)> of_any{
        shape, {}, &unit, &attention_blocks(unit.lines), y.data(), logsumexp.data(), qkv.data()};
    for_each_task(space, "kozero::attention_forward", shape.num_documents() * shape.kv_heads * most,
                  attention_tiles_forward_scratch<T>(unit, shape), workspace, [=](std::int64_t index, float* scratch) {
                    auto forward = of_any;
                    forward.document = shape.document(index / most / shape.kv_heads);
                    const std::int64_t parts = parts_of_head(shape, forward.document.count, threads);
                    if (index % most < parts) forward(index / most % shape.kv_heads, index % most, parts, scratch);
                  });
  });
}

#define KOZERO_INSTANTIATE(T)                                                                                \
  template std::int64_t attention_tiles_forward_scratch<T>(const TileUnit&, const AttentionShape&);          \
  template void attention_tiles_forward<Device, T>(const Device&, const TileUnit&, Matrix<T>, Matrix<float>, \
                                                   Matrix<const T>, const AttentionShape&, Vector<float>);
KOZERO_FOR_STORED_TYPES(KOZERO_INSTANTIATE)

}  // namespace kozero::kernels
