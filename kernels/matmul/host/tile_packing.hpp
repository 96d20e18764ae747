// SPDX-FileCopyrightText: The KoZeRO authors
// SPDX-License-Identifier: Apache-2.0
// tile_packing.hpp: blocks of 32 rows of a matrix in the order in which tile_product.hpp multiplies them.
//   left   [step][32 rows][16 words]        right   [step][16 words][32 rows]        a word: 1 float or 2 bf16 along k
// k is along the matrix's rows, or across them: a pair of bf16 then comes from two rows. fp16, and bf16 for units of
// floats, become float. Rows and k past the matrix's end are zero.
#pragma once
#include <algorithm>
#include <cstdint>
#include <type_traits>

#include "kernels/matmul/host/tile_blocks.hpp"
#include "kernels/matmul/host/tile_product.hpp"

namespace kozero::kernels {

/// Packs rows [first_row, first_row + 32) and `steps` from `first_k`, a multiple of a step's extent, to `to`,
/// which begins on a cache line.
template <class Word, class T>
void pack_block(LineKind lines, Word* to, TileSide side, const TileSource<T>& from, std::int64_t first_row,
                std::int64_t first_k, PackedSteps steps) {
  static_assert(sizeof(T) == sizeof(StorageOf<T>));
  const auto* const bits = reinterpret_cast<const StorageOf<T>*>(from.data);
  tile_blocks(lines).pack(reinterpret_cast<StorageOf<Word>*>(to), side,
                          TileSource<StorageOf<T>>{bits, from.rows, from.k, from.stride, from.k_across}, first_row,
                          first_k, steps);
}

/// Prefetches part `part` of `parts` of `rows` rows and `steps` steps of k into the second-level cache, for packing. A
/// processor drops long bursts of prefetches; about twenty lines, followed by other work, are executed. Always inline,
/// since gcc regards a function that only prefetches as one without effect, and drops its calls.
template <class Word, class T>
[[gnu::always_inline]] inline void prefetch_rows(const TileSource<T>& from, std::int64_t first_row, std::int64_t rows,
                                                 std::int64_t first_k, std::int64_t steps, std::int64_t part,
                                                 std::int64_t parts) {
  constexpr std::int64_t kLineBytes = 64;
  const std::int64_t depth = std::min(steps * kStepExtent<Word>, from.k - first_k);
  const std::int64_t width = std::min(rows, from.rows - first_row);
  const std::int64_t lines = from.k_across ? depth : width;
  const auto bytes = (from.k_across ? width : depth) * static_cast<std::int64_t>(sizeof(T));
  const T* const corner =
      from.data + (from.k_across ? first_k * from.stride + first_row : first_row * from.stride + first_k);
  for (std::int64_t line = lines * part / parts; line < lines * (part + 1) / parts; ++line) {
    const auto* const begin = reinterpret_cast<const char*>(corner + line * from.stride);
    for (std::int64_t byte = 0; byte < bytes; byte += kLineBytes) __builtin_prefetch(begin + byte, 0, 2);
  }
}

}  // namespace kozero::kernels
