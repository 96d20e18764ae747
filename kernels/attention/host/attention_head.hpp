// SPDX-FileCopyrightText: The KoZeRO authors
// SPDX-License-Identifier: Apache-2.0
// attention_head.hpp: a head's matrices (T, D) in blocks of 32 positions, as operands of tile products and as results.
// T are the positions of a document; without documents, of a sequence.
// Along: rows are positions and k is D. Across: rows are D, in blocks of 32, and k is positions.
#pragma once
#include <cstdint>
#include <initializer_list>

#include "kernels/attention/attention.hpp"
#include "kernels/attention/host/attention_blocks.hpp"
#include "kernels/launch/for_each.hpp"
#include "kernels/launch/vector_math.hpp"
#include "kernels/matmul/host/tile_packing.hpp"
#include "kernels/matmul/host/tile_product.hpp"

namespace kozero::kernels {

/// A head's extents in blocks of 32 and in steps of a product of words.
template <class Word>
struct HeadExtents {
  std::int64_t positions, dim;
  std::int64_t blocks;                                                        ///< of positions
  std::int64_t dim_blocks;                                                    ///< of D
  std::int64_t dim_steps;                                                     ///< of D
  static constexpr std::int64_t kBlockSteps = kTileRows / kStepExtent<Word>;  ///< of a block of positions

  HeadExtents(std::int64_t num_positions, std::int64_t head_dim)
      : positions(num_positions),
        dim(head_dim),
        blocks((positions + kTileRows - 1) / kTileRows),
        dim_blocks((dim + kTileRows - 1) / kTileRows),
        dim_steps(steps_of<Word>(dim)) {}

  /// Elements of a block of positions whose k is D.
  [[nodiscard]] std::int64_t along() const { return dim_steps * kStepElements<Word>; }
  /// Positions of block b that exist.
  [[nodiscard]] std::int64_t rows_of(std::int64_t b) const {
    return positions - b * kTileRows < kTileRows ? positions - b * kTileRows : kTileRows;
  }
  /// Columns of a head's block c of D that exist.
  [[nodiscard]] std::int64_t columns_of(std::int64_t c) const {
    return dim - c * kTileRows < kTileRows ? dim - c * kTileRows : kTileRows;
  }
};

/// A head's (T, D) matrix inside a larger one.
template <class T>
struct HeadRows {
  const T* data;
  std::int64_t stride;

  /// Packs the positions of block b as rows, with k = D.
  template <class Word>
  void pack_along(LineKind lines, Word* to, TileSide side, const HeadExtents<Word>& extents, std::int64_t b) const {
    pack_block<Word, T>(lines, to, side, {data, extents.positions, extents.dim, stride}, b * kTileRows, 0,
                        {extents.dim_steps});
  }
  /// Packs D as rows, with the positions of block b as k; each further block of D goes `next` elements on.
  template <class Word>
  void pack_across(LineKind lines, Word* to, TileSide side, const HeadExtents<Word>& extents, std::int64_t b,
                   std::int64_t next) const {
    for (std::int64_t c = 0; c < extents.dim_blocks; ++c) {
      pack_block<Word, T>(lines, to + c * next, side, {data, extents.dim, extents.positions, stride, true},
                          c * kTileRows, b * kTileRows, {HeadExtents<Word>::kBlockSteps});
    }
  }
};

/// Prefetches blocks of positions while products run, a part with each call of some(): a head's rows are too far apart
/// for the hardware's prefetching, and a processor drops long bursts.
template <class T, class Word>
class Lookahead {
 public:
  Lookahead(const HeadExtents<Word>& extents, std::int64_t calls) : extents_(extents), calls_(calls) {}

  /// Adds block b of these heads, if it exists.
  void add(std::int64_t b, std::initializer_list<HeadRows<T>> heads) {
    if (b >= extents_.blocks) return;
    for (const HeadRows<T>& head : heads) {
      of_[count_++] = {head.data + b * kTileRows * head.stride, extents_.rows_of(b), extents_.dim, head.stride};
    }
  }
  void some() {
    for (int h = 0; h < count_; ++h) prefetch_rows<Word>(of_[h], 0, kTileRows, 0, extents_.dim_steps, call_, calls_);
    ++call_;
  }

 private:
  HeadExtents<Word> extents_;
  TileSource<T> of_[8];
  int count_ = 0;
  std::int64_t calls_;
  std::int64_t call_ = 0;
};

/// The part of a head's (T, D) matrix in block b of positions and c of D, to be written.
template <class T, class Word>
MatrixPart<StorageOf<T>> part_of_head(T* head, std::int64_t stride, const HeadExtents<Word>& extents, std::int64_t b,
                                      std::int64_t c) {
  T* const first = head + b * kTileRows * stride + c * kTileRows;
  return {reinterpret_cast<StorageOf<T>*>(first), stride, extents.rows_of(b), extents.columns_of(c)};
}

/// m of the block of keys `j` and queries `i` of a document's head, or nullptr without dropout. Not inlined, since the
/// random numbers need all registers.
[[gnu::noinline]] inline const float* kept_block(float* block, const AttentionShape& shape,
                                                 const DocumentSpan& document, std::int64_t head, std::int64_t j,
                                                 std::int64_t i) {
  if (!(shape.dropout > 0.0F)) return nullptr;
  const std::int64_t first_query = document.first + i * kTileRows;
  const std::int64_t first_key = document.first + j * kTileRows;
  for (std::int64_t key = 0; key < kTileRows; ++key) {
    simd_loop(kTileRows, [=](std::int64_t query) {
      block[key * kTileRows + query] = shape.kept(document.sequence, head, first_query + query, first_key + key);
    });
  }
  return block;
}

}  // namespace kozero::kernels
