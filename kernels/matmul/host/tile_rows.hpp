// SPDX-FileCopyrightText: The KoZeRO authors
// SPDX-License-Identifier: Apache-2.0
// tile_rows.hpp: stores the sums of a block of a product as rows of c, with bias, addend and GELU.
//   c = sums [+ bias] [+ addend] [* gelu'(hidden)]        active = gelu(c), of c before it is rounded
// gelu.hpp has the formulas: gelu is within 2e-7 |x| of its own, gelu' within 2e-6. Needs AVX-512 (F, BW; for bf16 BF16
// too).
#pragma once
#include <cstdint>

#include "kernels/matmul/host/tile_product.hpp"

namespace kozero::kernels {

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

/// Makes non-temporal stores of this thread visible to threads that synchronize with it afterwards.
void finish_stores();

/// Stores the existing rows of [begin, end).
template <class Out, class In>
void store_tile_rows(const TileRows<Out, In>& block, std::int64_t begin, std::int64_t end);

}  // namespace kozero::kernels
