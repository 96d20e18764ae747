// SPDX-FileCopyrightText: The KoZeRO authors
// SPDX-License-Identifier: Apache-2.0
// tile_blocks.hpp: how the blocks of tile_product.hpp are packed, and how their sums are stored as rows of c, with
// bias, addend and GELU. Compiled once for each kind of vector instructions (lines.hpp).
//   c = sums [+ bias] [+ addend] [* gelu'(hidden)]        active = gelu(c), of c before it is rounded
// gelu.hpp has the formulas: gelu is within 2e-7 |x| of its own, gelu' within 2e-6.
#pragma once
#include <cstdint>

#include "kernels/matmul/host/tile_product.hpp"

namespace kozero::kernels {

/// A matrix (rows, k) of a product in memory.
template <class T>
struct TileSource {
  const T* data;
  std::int64_t rows, k;
  std::int64_t stride;  ///< elements from one row to the next, or from one k to the next if k is across
  bool k_across = false;
};

/// A block's part of the matrices (M, N): each pointer is at the block's first element, or null if there is none of
/// the kind. Out and In are storage types (StorageOf).
template <class Out, class In>
struct TileRows {
  Out* c = nullptr;
  const float* sums = nullptr;  ///< (32, 32), on a cache line; null: the block does not exist
  const In* bias = nullptr;     ///< of its columns
  const Out* addend = nullptr;
  Out* active = nullptr;
  const Out* hidden = nullptr;
  std::int64_t stride = 0;             ///< N, elements
  std::int64_t rows = 0, columns = 0;  ///< existing rows and columns, at most 32
  bool non_temporal = false;           ///< aligned whole rows of c and active bypass the caches: no line is read first
};

/// Steps of a packed block, and the words from one to the next.
struct PackedSteps {
  std::int64_t count;
  std::int64_t words = kTileRows * kStepWords;
};

/// T is a storage type (StorageOf) in all of its functions.
class TileBlocks {
 public:
  // Packs rows [first_row, first_row + 32) and `steps` from `first_k`: as floats, or, for the lines of units that
  // multiply them, bf16 as pairs.
  virtual void pack(float* to, TileSide side, const TileSource<float>& from, std::int64_t first_row,
                    std::int64_t first_k, PackedSteps steps) const = 0;
  virtual void pack(float* to, TileSide side, const TileSource<std::uint16_t>& from, std::int64_t first_row,
                    std::int64_t first_k, PackedSteps steps) const = 0;
  virtual void pack(float* to, TileSide side, const TileSource<Float16Bits>& from, std::int64_t first_row,
                    std::int64_t first_k, PackedSteps steps) const = 0;
  virtual void pack(std::uint16_t* to, TileSide side, const TileSource<std::uint16_t>& from, std::int64_t first_row,
                    std::int64_t first_k, PackedSteps steps) const = 0;

  // Stores the existing rows of [begin, end).
  virtual void store(const TileRows<float, float>& block, std::int64_t begin, std::int64_t end) const = 0;
  virtual void store(const TileRows<float, std::uint16_t>& block, std::int64_t begin, std::int64_t end) const = 0;
  virtual void store(const TileRows<std::uint16_t, std::uint16_t>& block, std::int64_t begin,
                     std::int64_t end) const = 0;
  virtual void store(const TileRows<float, Float16Bits>& block, std::int64_t begin, std::int64_t end) const = 0;
  virtual void store(const TileRows<Float16Bits, Float16Bits>& block, std::int64_t begin, std::int64_t end) const = 0;

  /// Makes non-temporal stores of this thread visible to threads that synchronize with it afterwards.
  virtual void finish_stores() const = 0;

 protected:
  ~TileBlocks() = default;
};

const TileBlocks& tile_blocks(LineKind lines);

}  // namespace kozero::kernels
