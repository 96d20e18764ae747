// SPDX-FileCopyrightText: The KoZeRO authors
// SPDX-License-Identifier: Apache-2.0
// row_blocks.hpp: sums over the rows of a matrix, one for each column or two at once, added into vectors.
//   out[k](c) += sum over n of terms(n, c)[k]         n in [0, rows), c in [0, columns)
// The rows are cut into kRowBlocks fixed blocks whatever the number of threads; each block's partial sums go to the
// workspace, and the partials are added in block order. No atomics: the bits depend on rows and columns alone. The
// workspace has row_reduction_workspace(columns) floats. Runs on `space`; returns without fencing.
#pragma once
#include <cstdint>
#include <Kokkos_Core.hpp>
#include <string>

#include <kozero/core/error.hpp>
#include <kozero/core/views.hpp>
#include <kozero/kernels/rows.hpp>

namespace kozero::kernels {

inline constexpr std::int64_t kRowBlocks = runs_on_host<Device> ? 32 : 256;  ///< a GPU has more workers to feed

/// Floats of workspace that the backward of bias, layernorm or rmsnorm needs for that many columns.
constexpr std::int64_t row_reduction_workspace(std::int64_t columns) { return 2 * kRowBlocks * columns; }

inline std::int64_t rows_of_block(std::int64_t rows) { return (rows + kRowBlocks - 1) / kRowBlocks; }
inline std::int64_t num_blocks(std::int64_t rows) { return (rows + rows_of_block(rows) - 1) / rows_of_block(rows); }

/// Columns that one worker sums at a time: a warp's lanes, or what stays in a host core's first cache; on a host mostly
/// a whole row, so that rows are read as one stream.
template <class Space>
inline constexpr std::int64_t kColumnTile = runs_on_host<Space> ? 4096 : kLanes;
/// Columns of which one worker adds the partials.
template <class Space>
inline constexpr std::int64_t kPartialTile = runs_on_host<Space> ? 256 : kLanes;

/// What a row adds to the sums of one column.
template <int kSums>
using RowTerms = Kokkos::Array<float, kSums>;

/// The columns [first, first + width) of a vector that is worked on in tiles.
struct ColumnTile {
  std::int64_t first, width;

  KOKKOS_FUNCTION ColumnTile(std::int64_t tile, std::int64_t extent, std::int64_t columns)
      : first(tile * extent), width(first + extent < columns ? extent : columns - first) {}
};

/// Rows [begin, end).
struct RowRange {
  std::int64_t begin, end;
};

/// The sums of terms(n) over rows n, in registers: how a GPU's lane goes down its column.
template <int kSums, class Terms>
KOKKOS_INLINE_FUNCTION RowTerms<kSums> sum_of_column(const RowRange& rows, const Terms& terms) {
  RowTerms<kSums> sum = {};
  KOZERO_UNROLLED_8
  for (std::int64_t n = rows.begin; n < rows.end; ++n) {
    const RowTerms<kSums> term = terms(n);
    for (int k = 0; k < kSums; ++k) sum[k] += term[k];
  }
  return sum;
}

/// sums[k * columns + c] = sum over rows n of terms(n, tile.first + c)[k], for c in [0, tile.width): on a host row after
/// row, which are read as streams.
template <int kSums, class Team, class Terms>
KOKKOS_INLINE_FUNCTION void sum_tile(const Team& team, float* sums, std::int64_t columns, const ColumnTile& tile,
                                     const RowRange& rows, const Terms& terms) {
  const std::int64_t first = tile.first;
  KOKKOS_IF_ON_HOST((for (std::int64_t n = rows.begin; n < rows.end; ++n) {
    const bool begins = n == rows.begin;
    for_each_column(team, tile.width, [=](std::int64_t c) {
      const RowTerms<kSums> term = terms(n, first + c);
      for (int k = 0; k < kSums; ++k) {
        float& sum = sums[k * columns + c];
        sum = begins ? term[k] : sum + term[k];
      }
    });
  }))
  KOKKOS_IF_ON_DEVICE((for_each_column(team, tile.width, [=](std::int64_t c) {
                         const RowTerms<kSums> sum =
                             sum_of_column<kSums>(rows, [=](std::int64_t n) { return terms(n, first + c); });
                         for (int k = 0; k < kSums; ++k) sums[k * columns + c] = sum[k];
                       });))
}

/// out[c] += sum over `blocks` of sums[block * stride + c], for c in [0, width); `sums` is used up.
template <class Team>
KOKKOS_INLINE_FUNCTION void add_partials(const Team& team, float* out, float* sums, std::int64_t width,
                                         std::int64_t blocks, std::int64_t stride) {
  KOKKOS_IF_ON_HOST((for (std::int64_t block = 1; block < blocks; ++block) {
    const float* const later = sums + block * stride;
    for_each_column(team, width, [=](std::int64_t c) { sums[c] += later[c]; });
  } for_each_column(team, width, [=](std::int64_t c) { out[c] += sums[c]; });))
  KOKKOS_IF_ON_DEVICE((for_each_column(team, width, [=](std::int64_t c) {
                         const auto of_block = [=](std::int64_t block) {
                           return RowTerms<1>{sums[block * stride + c]};
                         };
                         out[c] += sum_of_column<1>({0, blocks}, of_block)[0];
                       });))
}

/// Writes each block's sums: those of block b and sum k are the `columns` floats from partials + (b * kSums + k) *
/// columns.
template <int kSums, class Space, class Terms>
void sum_blocks(const Space& space, const std::string& label, float* partials, std::int64_t rows, std::int64_t columns,
                const Terms& terms) {
  const std::int64_t block_rows = rows_of_block(rows);
  constexpr std::int64_t kTile = kColumnTile<Space>;
  const std::int64_t tiles = (columns + kTile - 1) / kTile;
  for_each_row(
      space, label + "::blocks", num_blocks(rows) * tiles,
      KOKKOS_LAMBDA(const RowTeam<Space>& team, std::int64_t item) {
        const std::int64_t begin = item / tiles * block_rows;
        const RowRange block{begin, begin + block_rows < rows ? begin + block_rows : rows};
        const ColumnTile tile(item % tiles, kTile, columns);
        sum_tile<kSums>(team, partials + item / tiles * kSums * columns + tile.first, columns, tile, block, terms);
      });
}

/// Adds the blocks' sums in block order, and then to `out`.
template <int kSums, class Space>
void add_blocks(const Space& space, const std::string& label, const Kokkos::Array<Vector<float>, kSums>& out,
                float* partials, std::int64_t blocks) {
  const auto columns = static_cast<std::int64_t>(out[0].extent(0));
  constexpr std::int64_t kTile = kPartialTile<Space>;
  const std::int64_t tiles = (columns + kTile - 1) / kTile;
  for_each_row(
      space, label, kSums * tiles, KOKKOS_LAMBDA(const RowTeam<Space>& team, std::int64_t item) {
        const ColumnTile tile(item % tiles, kTile, columns);
        const std::int64_t k = item / tiles;
        add_partials(team, out[k].data() + tile.first, partials + k * columns + tile.first, tile.width, blocks,
                     kSums * columns);
      });
}

template <int kSums, class Space, class Terms>
void add_row_sums(const Space& space, const std::string& label, const Kokkos::Array<Vector<float>, kSums>& out,
                  std::int64_t rows, const Terms& terms, Vector<float> workspace) {
  const auto columns = static_cast<std::int64_t>(out[0].extent(0));
  if (rows == 0 || columns == 0) return;
  const std::int64_t blocks = num_blocks(rows);
  require(static_cast<std::int64_t>(workspace.extent(0)) >= kSums * blocks * columns,
          label + ": the workspace is too small");
  sum_blocks<kSums>(space, label, workspace.data(), rows, columns, terms);
  add_blocks<kSums>(space, label, out, workspace.data(), blocks);
}

}  // namespace kozero::kernels
