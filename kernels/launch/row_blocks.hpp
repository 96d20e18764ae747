// SPDX-FileCopyrightText: The KoZeRO authors
// SPDX-License-Identifier: Apache-2.0
// row_blocks.hpp: column sums of a matrix in fixed blocks of rows, for example the gradient of a bias.
//   out[k](c) += sum over n of terms(n, x(n, c), y(n, c), ...)[k]         n in [0, rows), c in [0, columns)
//   dbias(c) += sum over n of dy(n, c)
// The rows are cut into kRowBlocks fixed blocks, whatever the number of threads. Each block's partial sums go to the
// workspace, which has row_reduction_workspace(columns) floats, and are added in a fixed order without atomics. So the
// bits depend only on rows and columns. Runs on `space` and returns without fencing.
#pragma once
#include <cstdint>
#include <Kokkos_Core.hpp>
#include <string>
#include <utility>

#include <kozero/core/error.hpp>
#include <kozero/core/views.hpp>
#include "kernels/launch/for_each.hpp"
#include "kernels/launch/packs.hpp"

namespace kozero::kernels {

/// Row n begins at n * stride.
template <class T>
struct WholeRows {
  using Stored = T;
  const T* data;
  std::int64_t stride;

  [[nodiscard]] KOKKOS_FUNCTION const T* at(std::int64_t n) const { return data + n * stride; }
  /// All rows are aligned.
  [[nodiscard]] KOKKOS_FUNCTION bool packed() const { return is_aligned(data) && stride % kPackOf<T> == 0; }
};

/// Parts of longer rows, `parts` consecutive ones in each: row n begins at (n / parts) * stride + (n % parts) * extent.
/// Fewer than 2^32 rows.
template <class T>
struct PartsOfRows {
  using Stored = T;
  const T* data;
  std::int64_t stride;
  std::int64_t parts;
  std::int64_t extent;

  [[nodiscard]] KOKKOS_FUNCTION const T* at(std::int64_t n) const {
    return data + row(n) * stride + (n - row(n) * parts) * extent;
  }
  /// The longer row of row n. In 32 bits, since a GPU divides 64 bits in four times the time.
  [[nodiscard]] KOKKOS_FUNCTION std::int64_t row(std::int64_t n) const {
    return static_cast<std::uint32_t>(n) / static_cast<std::uint32_t>(parts);
  }
  [[nodiscard]] KOKKOS_FUNCTION bool packed() const {
    return is_aligned(data) && stride % kPackOf<T> == 0 && extent % kPackOf<T> == 0;
  }
};

/// `count` rows of each of several arrays of one type.
template <class Array, int kArrays>
struct Rows {
  Kokkos::Array<Array, kArrays> arrays;
  std::int64_t count;
};

template <class T, class... More>
auto rows_of(const Matrix<const T>& first, const More&... more) {
  const auto columns = static_cast<std::int64_t>(first.extent(1));
  using Array = WholeRows<T>;
  return Rows<Array, 1 + sizeof...(More)>{{Array{first.data(), columns}, Array{more.data(), columns}...},
                                          static_cast<std::int64_t>(first.extent(0))};
}

/// Number of row blocks for kSums sums per column; more on a GPU, which has more workers.
template <int kSums>
inline constexpr std::int64_t kRowBlocks = runs_on_host<Device> ? 32 : 1024 / kSums;

/// Floats of workspace that the backward of bias, layernorm or rmsnorm needs for that many columns.
constexpr std::int64_t row_reduction_workspace(std::int64_t columns) { return 2 * kRowBlocks<2> * columns; }

/// Blocks of rows of equal extent, the last possibly smaller.
template <int kSums>
struct RowBlocks {
  std::int64_t extent;  ///< rows of a block
  std::int64_t count;

  explicit RowBlocks(std::int64_t rows)
      : extent((rows + kRowBlocks<kSums> - 1) / kRowBlocks<kSums>), count((rows + extent - 1) / extent) {}
};

/// Columns that one worker sums at a time. On a GPU, a pack per lane of a warp. On a host, as many as the first-level
/// cache holds, mostly a whole row, so that rows are read as one stream.
template <class Space, class T>
inline constexpr std::int64_t kColumnTile = runs_on_host<Space> ? 4096 : std::int64_t{kLanes} * kPackOf<T>;
/// Columns whose partial sums one worker adds.
template <class Space>
inline constexpr std::int64_t kPartialTile = runs_on_host<Space> ? 256 : kLanes;

/// A row's terms of the sums of one column.
template <int kSums>
using RowTerms = Kokkos::Array<float, kSums>;

/// Columns [first, first + width) of a vector that is processed in tiles.
struct ColumnTile {
  std::int64_t first, width;

  KOKKOS_FUNCTION ColumnTile(std::int64_t tile, std::int64_t extent, std::int64_t columns)
      : first(tile * extent), width(first + extent < columns ? extent : columns - first) {}
};

/// Rows [begin, end).
struct RowRange {
  std::int64_t begin, end;
};

/// Rows [range.begin, range.end) of columns [first, ...) of all arrays.
template <int kSums, class Array, int kArrays, class Terms>
struct RowSums {
  using T = typename Array::Stored;
  Rows<Array, kArrays> rows;
  Terms terms;
  RowRange range;
  std::int64_t first;

  template <int kWidth>
  using ColumnSums = Kokkos::Array<Pack<kWidth>, kSums>;

  /// sum[k] += terms[k] of rows [n, n + kRows). All rows are read before the first is added.
  template <int kRows, int kWidth, int... kIndices>
  KOKKOS_FUNCTION void add_rows(ColumnSums<kWidth>& sum, std::int64_t n, std::int64_t c,
                                std::integer_sequence<int, kIndices...> /*indices*/) const {
    StoredPack<T, kWidth> values[kRows][kArrays];
    KOZERO_UNROLLED
    for (int j = 0; j < kRows; ++j) {
      ((values[j][kIndices] = stored_pack<kWidth>(rows.arrays[kIndices].at(n + j) + first + c)), ...);
    }
    KOZERO_UNROLLED
    for (int j = 0; j < kRows; ++j) {
      KOZERO_UNROLLED
      for (int i = 0; i < kWidth; ++i) {
        const RowTerms<kSums> term = terms(n + j, static_cast<float>(values[j][kIndices].x[i])...);
        for (int k = 0; k < kSums; ++k) sum[k].x[i] += term[k];
      }
    }
  }

  /// sums[k * stride + c] = sum over the rows of terms[k], in registers: a GPU lane goes down its columns
  /// [c, c + kWidth).
  template <int kWidth>
  KOKKOS_FUNCTION void go_down(float* sums, std::int64_t stride, std::int64_t c) const {
    constexpr auto kIndices = std::make_integer_sequence<int, kArrays>();
    constexpr int kRows = 8;
    ColumnSums<kWidth> sum = {};
    std::int64_t n = range.begin;
    for (; n + kRows <= range.end; n += kRows) add_rows<kRows, kWidth>(sum, n, c, kIndices);
    for (; n < range.end; ++n) add_rows<1, kWidth>(sum, n, c, kIndices);
    for (int k = 0; k < kSums; ++k) store_pack(sums + k * stride + c, sum[k]);
  }

  /// The same on a host, row after row, so that rows are read as streams.
  template <int... kIndices>
  void go_along(float* sums, std::int64_t stride, std::int64_t width,
                std::integer_sequence<int, kIndices...> /*indices*/) const {
    for (std::int64_t n = range.begin; n < range.end; ++n) {
      const bool begins = n == range.begin;
      const Kokkos::Array<const T*, kArrays> row = {(rows.arrays[kIndices].at(n) + first)...};
      simd_loop(width, [=, f = terms](std::int64_t c) {
        const RowTerms<kSums> term = f(n, static_cast<float>(row[kIndices][c])...);
        for (int k = 0; k < kSums; ++k) {
          float& sum = sums[k * stride + c];
          sum = begins ? term[k] : sum + term[k];
        }
      });
    }
  }

  template <class Team>
  KOKKOS_FUNCTION void operator()(const Team& team, float* sums, std::int64_t stride, std::int64_t width) const {
    KOKKOS_IF_ON_HOST(
        (static_cast<void>(team); go_along(sums, stride, width, std::make_integer_sequence<int, kArrays>());))
    KOKKOS_IF_ON_DEVICE((bool packed = is_aligned(sums) && stride % kPackOf<float> == 0;
                         for (int k = 0; k < kArrays; ++k) packed = packed && rows.arrays[k].packed();
                         for_each_pack<kPackOf<T>>(team, width, packed, [&](auto count, std::int64_t c) {
                           go_down<decltype(count)::value>(sums, stride, c);
                         });))
  }
};

/// `count` rows of partial sums, `stride` floats apart.
struct Partials {
  float* sums;
  std::int64_t count;
  std::int64_t stride;
};

/// sums[c] of partial `begin` becomes the sum of the partials [begin, end), in their order.
KOKKOS_INLINE_FUNCTION void add_share(const Partials& partials, std::int64_t begin, std::int64_t end, std::int64_t c) {
  float sum = 0.0F;
  KOZERO_UNROLLED_BY(32)
  for (std::int64_t n = begin; n < end; ++n) sum += partials.sums[n * partials.stride + c];
  partials.sums[begin * partials.stride + c] = sum;
}

/// add_partials on a GPU: each thread of the team adds a share of the partials, then one thread adds the shares.
template <class Team>
KOKKOS_INLINE_FUNCTION void add_shares(const WholeTeam<Team>& whole, float* out, const Partials& partials,
                                       std::int64_t width) {
  constexpr std::int64_t kShares = 8;
  const std::int64_t extent = (partials.count + kShares - 1) / kShares;
  Kokkos::parallel_for(Kokkos::TeamThreadRange(whole.team, kShares), [&](std::int64_t share) {
    const std::int64_t begin = share * extent;
    const std::int64_t end = begin + extent < partials.count ? begin + extent : partials.count;
    if (begin >= end) return;
    Kokkos::parallel_for(columns_of(whole.team, width), [&](std::int64_t c) { add_share(partials, begin, end, c); });
  });
  meet(whole);
  Kokkos::parallel_for(columns_of(whole, width), [&](std::int64_t c) {
    float sum = 0.0F;
    for (std::int64_t n = 0; n < partials.count; n += extent) sum += partials.sums[n * partials.stride + c];
    out[c] += sum;
  });
}

/// out[c] += sum over the partials of sums[n * stride + c], for c in [0, width); overwrites the sums.
template <class Team>
KOKKOS_INLINE_FUNCTION void add_partials(const Team& team, float* out, const Partials& partials, std::int64_t width) {
  KOKKOS_IF_ON_HOST((float* const sums = partials.sums; for (std::int64_t n = 1; n < partials.count; ++n) {
    const float* const later = sums + n * partials.stride;
    for_each_column(team, width, [=](std::int64_t c) { sums[c] += later[c]; });
  } for_each_column(team, width, [=](std::int64_t c) { out[c] += sums[c]; });))
  KOKKOS_IF_ON_DEVICE((add_shares(team, out, partials, width);))
}

/// Writes each block's sums: sum k of block b has `columns` floats at partials + (b * kSums + k) * columns.
template <int kSums, class Space, class Array, int kArrays, class Terms>
static void sum_blocks(const Space& space, const std::string& label, float* partials, const Rows<Array, kArrays>& rows,
                       std::int64_t columns, const Terms& terms) {
  const RowBlocks<kSums> blocks(rows.count);
  constexpr std::int64_t kTile = kColumnTile<Space, typename Array::Stored>;
  const std::int64_t tiles = (columns + kTile - 1) / kTile;
  for_each_row(
      space, label + "::blocks", blocks.count * tiles, KOKKOS_LAMBDA(const RowTeam<Space>& team, std::int64_t item) {
        const std::int64_t begin = item / tiles * blocks.extent;
        const RowRange block{begin, begin + blocks.extent < rows.count ? begin + blocks.extent : rows.count};
        const ColumnTile tile(item % tiles, kTile, columns);
        const RowSums<kSums, Array, kArrays, Terms> sums{rows, terms, block, tile.first};
        sums(team, partials + item / tiles * kSums * columns + tile.first, columns, tile.width);
      });
}

/// Adds the blocks' sums in a fixed order and accumulates them into `out`.
template <int kSums, class Space>
static void add_blocks(const Space& space, const std::string& label, const Kokkos::Array<Vector<float>, kSums>& out,
                       float* partials, std::int64_t blocks) {
  const auto columns = static_cast<std::int64_t>(out[0].extent(0));
  constexpr std::int64_t kTile = kPartialTile<Space>;
  const std::int64_t tiles = (columns + kTile - 1) / kTile;
  for_each_long_row(
      space, label, kSums * tiles, KOKKOS_LAMBDA(const WholeTeam<RowTeam<Space>>& team, std::int64_t item) {
        const ColumnTile tile(item % tiles, kTile, columns);
        const std::int64_t k = item / tiles;
        const Partials of_column{partials + k * columns + tile.first, blocks, kSums * columns};
        add_partials(team, out[k].data() + tile.first, of_column, tile.width);
      });
}

template <int kSums, class Space, class Array, int kArrays, class Terms>
void add_row_sums(const Space& space, const std::string& label, const Kokkos::Array<Vector<float>, kSums>& out,
                  const Rows<Array, kArrays>& rows, const Terms& terms, Vector<float> workspace) {
  const auto columns = static_cast<std::int64_t>(out[0].extent(0));
  if (rows.count == 0 || columns == 0) return;
  const std::int64_t blocks = RowBlocks<kSums>(rows.count).count;
  require(static_cast<std::int64_t>(workspace.extent(0)) >= kSums * blocks * columns,
          label + ": the workspace is too small");
  sum_blocks<kSums>(space, label, workspace.data(), rows, columns, terms);
  add_blocks<kSums>(space, label, out, workspace.data(), blocks);
}

}  // namespace kozero::kernels
