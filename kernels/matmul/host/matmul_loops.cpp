// SPDX-FileCopyrightText: The KoZeRO authors
// SPDX-License-Identifier: Apache-2.0
// matmul_loops.cpp: the host's products without a tile unit, on any processor. Both operands are copied in float
// into panels, of 6 rows of op(a) and of 16 columns of op(b), k by k; sums of 6 x 16 elements then stay in registers
// while k runs (Goto, van de Geijn, "Anatomy of high-performance matrix multiplication", 2008, with twelve sums of 8
// lanes, as AVX2 has room for). The terms of an element are added in the order of k, so its bits depend on its row of a
// and its column of b alone: not on M, N or the threads.
#include <algorithm>
#include <cstring>
#include <vector>

#include <kozero/core/precision.hpp>
#include "kernels/matmul/host/matmul_host.hpp"

namespace kozero::kernels {
namespace {

using Lanes [[gnu::vector_size(32)]] = float;
constexpr int kVectorLanes = 8;
constexpr int kPanelRows = 6;
constexpr int kPanelColumns = 16;
// A task's tile of c: its sums fit into the second-level cache.
constexpr std::int64_t kSumRows = 16 * kPanelRows;
constexpr std::int64_t kSumColumns = 8 * kPanelColumns;
constexpr std::int64_t kSteps = 256;  // of k: a panel of b of that length fits into the first-level cache
constexpr std::int64_t kPacked = std::int64_t{1} << 22;  // about the floats of an operand that are packed at once
constexpr std::int64_t kSpan = 4096;                     // of k, for which operands are packed at once

std::int64_t rounded_up(std::int64_t n, std::int64_t to) { return (n + to - 1) / to * to; }

/// The rows of op(a), or the columns of op(b) as rows of its transpose: vectors over k.
template <class T>
struct Vectors {
  const T* data;
  std::int64_t extent, k;
  std::int64_t stride, stride_k;  ///< elements to the next vector, and to the next k

  [[nodiscard]] Vectors part(std::int64_t first, std::int64_t most) const {
    return {data + first * stride, std::min(most, extent - first), k, stride, stride_k};
  }
  [[nodiscard]] Vectors span(std::int64_t first, std::int64_t most) const {
    return {data + first * stride_k, extent, std::min(most, k - first), stride, stride_k};
  }
};

template <class T>
Vectors<T> row_vectors(const T* a, bool transposed, std::int64_t row, std::int64_t m, std::int64_t k) {
  return transposed ? Vectors<T>{a, m, k, 1, row} : Vectors<T>{a, m, k, row, 1};
}

/// Panel `index`, [k][kWidth], with zeros for vectors that do not exist.
template <int kWidth, class T>
void pack_panel(float* panels, const Vectors<T>& from, std::int64_t index) {
  float* const to = panels + index * kWidth * from.k;
  const T* const data = from.data + index * kWidth * from.stride;
  const std::int64_t count = std::min<std::int64_t>(kWidth, from.extent - index * kWidth);
  if (count == kWidth && from.stride == 1) {
    for (std::int64_t k = 0; k < from.k; ++k) {
      for (int i = 0; i < kWidth; ++i) to[k * kWidth + i] = static_cast<float>(data[k * from.stride_k + i]);
    }
    return;
  }
  for (int i = 0; i < kWidth; ++i) {
    const T* const vector = data + i * from.stride;
    if (i < count) {
      for (std::int64_t k = 0; k < from.k; ++k) to[k * kWidth + i] = static_cast<float>(vector[k * from.stride_k]);
    } else {
      for (std::int64_t k = 0; k < from.k; ++k) to[k * kWidth + i] = 0.0F;
    }
  }
}

// Copies a single vector, which the compiler keeps in a register; larger copies go through memory.
Lanes load(const float* from) {
  Lanes lanes;
  std::memcpy(&lanes, from, sizeof(lanes));
  return lanes;
}
void store(float* to, Lanes lanes) { std::memcpy(to, &lanes, sizeof(lanes)); }

/// sums (6, 16), rows kSumColumns apart, += or, if `first`, = the products of `steps` steps of two panels.
void multiply_panels(float* sums, const float* a, const float* b, std::int64_t steps, bool first) {
  Lanes sum[kPanelRows][2] = {};
  if (!first) {
#pragma GCC unroll 6
    for (int r = 0; r < kPanelRows; ++r) {
      sum[r][0] = load(sums + r * kSumColumns);
      sum[r][1] = load(sums + r * kSumColumns + kVectorLanes);
    }
  }
  for (std::int64_t k = 0; k < steps; ++k, a += kPanelRows, b += kPanelColumns) {
    const Lanes low = load(b);
    const Lanes high = load(b + kVectorLanes);
#pragma GCC unroll 6
    for (int r = 0; r < kPanelRows; ++r) {
      sum[r][0] += a[r] * low;
      sum[r][1] += a[r] * high;
    }
  }
#pragma GCC unroll 6
  for (int r = 0; r < kPanelRows; ++r) {
    store(sums + r * kSumColumns, sum[r][0]);
    store(sums + r * kSumColumns + kVectorLanes, sum[r][1]);
  }
}

/// sums (rows, columns), at most a tile, = or, if not `first`, += products of panels [rows][k][6], [columns][k][16].
void multiply_tile(float* sums, const float* a, const float* b, std::int64_t rows, std::int64_t columns, std::int64_t k,
                   bool first) {
  for (std::int64_t step = 0; step < k; step += kSteps) {
    const std::int64_t steps = std::min(kSteps, k - step);
    for (std::int64_t n = 0; n < columns; n += kPanelColumns) {
      for (std::int64_t m = 0; m < rows; m += kPanelRows) {
        multiply_panels(sums + m * kSumColumns + n, a + m * k + step * kPanelRows, b + n * k + step * kPanelColumns,
                        steps, first && step == 0);
      }
    }
  }
}

struct Tile {
  alignas(64) float sums[kSumRows * kSumColumns];
};

/// The inputs and outputs of a tile's sums.
template <class Out, class In>
struct ResultTile {
  Out* c;
  const Out* addend;  ///< null: nothing
  const In* bias;     ///< null: nothing
  float* waiting;     ///< (M, N) sums between two spans of k
  std::int64_t stride;
  bool first, last;  ///< span

  void load(Tile& tile, std::int64_t row, std::int64_t column, std::int64_t height, std::int64_t width) const {
    if (first) return;
    for (std::int64_t r = 0; r < height; ++r) {
      std::copy_n(waiting + (row + r) * stride + column, width, tile.sums + r * kSumColumns);
    }
  }

  void store(const Tile& tile, std::int64_t row, std::int64_t column, std::int64_t height, std::int64_t width) const {
    for (std::int64_t r = 0; r < height; ++r) {
      const std::int64_t at = (row + r) * stride + column;
      const float* const sums = tile.sums + r * kSumColumns;
      if (!last) {
        std::copy_n(sums, width, waiting + at);
        continue;
      }
      for (std::int64_t i = 0; i < width; ++i) {
        float value = sums[i];
        if (bias != nullptr) value += static_cast<float>(bias[column + i]);
        if (addend != nullptr) value += static_cast<float>(addend[at + i]);
        c[at + i] = static_cast<Out>(value);
      }
    }
  }
};

template <int kWidth, class T>
float* packed(const Device& space, ProductScratch& scratch, const Vectors<T>& from) {
  const std::int64_t panels = rounded_up(from.extent, kWidth) / kWidth;
  auto* const to =
      reinterpret_cast<float*>(scratch.at_least(panels * kWidth * from.k * static_cast<std::int64_t>(sizeof(float))));
  for_each_task(space, "kozero::matmul_loops::pack", panels,
                [=](std::int64_t panel) { pack_panel<kWidth>(to, from, panel); });
  return to;
}

/// The number of vectors whose panels have at most kPacked floats, but at least a tile.
std::int64_t vectors_at_once(std::int64_t k, std::int64_t tile) { return std::max(tile, kPacked / k / tile * tile); }

struct Scratch {
  ProductScratch a, b, sums;
};
Scratch& scratch() {
  static Scratch scratch;
  return scratch;
}

}  // namespace

template <class Out, class In>
void multiply_by_loops(const Device& space, const ProductShape& shape, Out* c, const In* a, const In* b,
                       const Epilogue<Out, In>& epilogue) {
  const bool transposed_a = shape.op_a == Op::transpose;
  const bool transposed_b = shape.op_b == Op::transpose;
  const auto rows = row_vectors(a, transposed_a, transposed_a ? shape.m : shape.k, shape.m, shape.k);
  const auto columns = row_vectors(b, !transposed_b, transposed_b ? shape.k : shape.n, shape.n, shape.k);
  const std::int64_t longest = std::min(shape.k, kSpan);
  const std::int64_t some_rows = vectors_at_once(longest, kSumRows);
  const std::int64_t some_columns = vectors_at_once(longest, kSumColumns);
  // The sums of all spans except the last, (M, N).
  auto* const waiting = shape.k <= kSpan ? nullptr
                                         : reinterpret_cast<float*>(scratch().sums.at_least(
                                               shape.m * shape.n * static_cast<std::int64_t>(sizeof(float))));
  for (std::int64_t step = 0; step < shape.k; step += kSpan) {
    const ResultTile<Out, In> result{c,
                                     !shape.accumulate            ? nullptr
                                     : epilogue.addend != nullptr ? epilogue.addend
                                                                  : c,
                                     epilogue.bias,
                                     waiting,
                                     shape.n,
                                     step == 0,
                                     step + kSpan >= shape.k};
    for (std::int64_t n = 0; n < shape.n; n += some_columns) {
      const auto of_b = columns.span(step, kSpan).part(n, some_columns);
      const float* const panels_b = packed<kPanelColumns>(space, scratch().b, of_b);
      for (std::int64_t m = 0; m < shape.m; m += some_rows) {
        const auto of_a = rows.span(step, kSpan).part(m, some_rows);
        const float* const panels_a = packed<kPanelRows>(space, scratch().a, of_a);
        const std::int64_t across = rounded_up(of_b.extent, kSumColumns) / kSumColumns;
        const std::int64_t down = rounded_up(of_a.extent, kSumRows) / kSumRows;
        for_each_task(space, "kozero::matmul_loops::multiply", across * down, [=](std::int64_t task) {
          const std::int64_t first_row = task / across * kSumRows;
          const std::int64_t first_column = task % across * kSumColumns;
          const std::int64_t height = std::min(kSumRows, of_a.extent - first_row);
          const std::int64_t width = std::min(kSumColumns, of_b.extent - first_column);
          Tile tile;
          result.load(tile, m + first_row, n + first_column, height, width);
          multiply_tile(tile.sums, panels_a + first_row * of_a.k, panels_b + first_column * of_a.k, height, width,
                        of_a.k, result.first);
          result.store(tile, m + first_row, n + first_column, height, width);
        });
      }
    }
  }
}

void multiply_on_this_thread(Block<float> out, Op op_a, Block<const float> a, Op op_b, Block<const float> b,
                             std::int64_t m, std::int64_t n, std::int64_t k, float alpha, float beta) {
  require(k > 0, "multiply_on_this_thread: the inner extent is 0");
  thread_local std::vector<float> panels_a, panels_b;
  panels_a.resize(static_cast<std::size_t>(kSumRows * k));
  panels_b.resize(static_cast<std::size_t>(kSumColumns * k));
  const auto rows = row_vectors(a.data, op_a == Op::transpose, a.row, m, k);
  const auto columns = row_vectors(b.data, op_b == Op::none, b.row, n, k);
  Tile tile;
  for (std::int64_t first_row = 0; first_row < m; first_row += kSumRows) {
    const auto of_a = rows.part(first_row, kSumRows);
    for (std::int64_t p = 0; p * kPanelRows < of_a.extent; ++p) pack_panel<kPanelRows>(panels_a.data(), of_a, p);
    for (std::int64_t first_column = 0; first_column < n; first_column += kSumColumns) {
      const auto of_b = columns.part(first_column, kSumColumns);
      for (std::int64_t p = 0; p * kPanelColumns < of_b.extent; ++p)
        pack_panel<kPanelColumns>(panels_b.data(), of_b, p);
      multiply_tile(tile.sums, panels_a.data(), panels_b.data(), of_a.extent, of_b.extent, k, true);
      for (std::int64_t r = 0; r < of_a.extent; ++r) {
        float* const to = out.data + (first_row + r) * out.row + first_column;
        const float* const sums = tile.sums + r * kSumColumns;
        for (std::int64_t i = 0; i < of_b.extent; ++i) {
          to[i] = beta == 0.0F ? alpha * sums[i] : alpha * sums[i] + beta * to[i];
        }
      }
    }
  }
}

KOZERO_INSTANTIATE_PRODUCTS(multiply_by_loops)

}  // namespace kozero::kernels
