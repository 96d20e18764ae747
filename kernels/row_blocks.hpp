// SPDX-FileCopyrightText: The KoZeRO authors
// SPDX-License-Identifier: Apache-2.0
// row_blocks.hpp: sums over the rows of a matrix, one for each column, added into a vector.
//   out(c) += sum over n of value(n, c)         n in [0, rows), c in [0, columns)
// The rows are cut into kRowBlocks fixed blocks whatever the number of threads; each block's partial sum goes to the
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

inline constexpr std::int64_t kRowBlocks = 32;

/// Floats of workspace that the backward of bias, layernorm or rmsnorm needs for that many columns.
constexpr std::int64_t row_reduction_workspace(std::int64_t columns) { return kRowBlocks * columns; }

/// Columns that one worker sums at a time: a warp's lanes, or what stays in a host core's first cache; on a host mostly a
/// whole row, so that rows are read as one stream.
template <class Space>
inline constexpr std::int64_t kColumnTile = runs_on_host<Space> ? 4096 : kLanes;

template <class Space, class Value>
void add_row_sums(const Space& space, const std::string& label, Vector<float> out, std::int64_t rows,
                  const Value& value, Vector<float> workspace) {
  const auto columns = static_cast<std::int64_t>(out.extent(0));
  if (rows == 0 || columns == 0) return;
  const std::int64_t block_rows = (rows + kRowBlocks - 1) / kRowBlocks;
  const std::int64_t blocks = (rows + block_rows - 1) / block_rows;
  require(static_cast<std::int64_t>(workspace.extent(0)) >= blocks * columns, label + ": the workspace is too small");
  constexpr std::int64_t kTile = kColumnTile<Space>;
  const std::int64_t tiles = (columns + kTile - 1) / kTile;
  float* const partials = workspace.data();
  for_each_row(
      space, label + "::blocks", blocks * tiles, KOKKOS_LAMBDA(const RowTeam<Space>& team, std::int64_t item) {
        const std::int64_t block = item / tiles;
        const std::int64_t first = item % tiles * kTile;
        const std::int64_t width = first + kTile < columns ? kTile : columns - first;
        const std::int64_t first_row = block * block_rows;
        const std::int64_t end_row = first_row + block_rows < rows ? first_row + block_rows : rows;
        float* const partial = partials + block * columns + first;
        for_each_column(team, width, [&](std::int64_t c) { partial[c] = value(first_row, first + c); });
        for (std::int64_t n = first_row + 1; n < end_row; ++n) {
          for_each_column(team, width, [&](std::int64_t c) { partial[c] += value(n, first + c); });
        }
      });
  float* const sums = out.data();
  for_each_element(
      space, label, columns, KOKKOS_LAMBDA(std::int64_t c) {
        float sum = partials[c];
        for (std::int64_t block = 1; block < blocks; ++block) sum += partials[block * columns + c];
        sums[c] += sum;
      });
}

}  // namespace kozero::kernels
