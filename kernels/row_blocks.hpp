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

/// The sums of terms(n) over n in [begin, end), in registers: how a GPU's lane goes down its column.
template <int kSums, class Terms>
KOKKOS_INLINE_FUNCTION RowTerms<kSums> sum_of_column(std::int64_t begin, std::int64_t end, const Terms& terms) {
  RowTerms<kSums> sum = {};
  KOZERO_UNROLLED_8
  for (std::int64_t n = begin; n < end; ++n) {
    const RowTerms<kSums> term = terms(n);
    for (int k = 0; k < kSums; ++k) sum[k] += term[k];
  }
  return sum;
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
        const std::int64_t end = begin + block_rows < rows ? begin + block_rows : rows;
        const ColumnTile tile(item % tiles, kTile, columns);
        const std::int64_t first = tile.first;
        float* const sums = partials + item / tiles * kSums * columns + first;
        if constexpr (!runs_on_host<Space>) {
          for_each_column(team, tile.width, [=](std::int64_t c) {
            const auto of_row = [=](std::int64_t n) { return terms(n, first + c); };
            const RowTerms<kSums> sum = sum_of_column<kSums>(begin, end, of_row);
            for (int k = 0; k < kSums; ++k) sums[k * columns + c] = sum[k];
          });
          return;
        }
        for (std::int64_t n = begin; n < end; ++n) {
          const bool begins = n == begin;
          for_each_column(team, tile.width, [=](std::int64_t c) {
            const RowTerms<kSums> term = terms(n, first + c);
            for (int k = 0; k < kSums; ++k) {
              float& sum = sums[k * columns + c];
              sum = begins ? term[k] : sum + term[k];
            }
          });
        }
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
        float* const sums = partials + k * columns + tile.first;
        if constexpr (!runs_on_host<Space>) {
          for_each_column(team, tile.width, [=](std::int64_t c) {
            const auto of_block = [=](std::int64_t block) { return RowTerms<1>{sums[kSums * block * columns + c]}; };
            out[k].data()[tile.first + c] += sum_of_column<1>(0, blocks, of_block)[0];
          });
          return;
        }
        for (std::int64_t block = 1; block < blocks; ++block) {
          const float* const later = sums + kSums * block * columns;
          for_each_column(team, tile.width, [=](std::int64_t c) { sums[c] += later[c]; });
        }
        float* const to = out[k].data() + tile.first;
        for_each_column(team, tile.width, [=](std::int64_t c) { to[c] += sums[c]; });
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
