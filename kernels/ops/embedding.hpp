// SPDX-FileCopyrightText: The KoZeRO authors
// SPDX-License-Identifier: Apache-2.0
// embedding.hpp: rows looked up in a table, by token or by position, with the tables' gradients.
//   x(n, :) = wte(tokens(n), :)               x (N, C)   wte (V, C)   tokens (N), each in [0, V)
//   x(n, :) += wpe(n mod T, :)                wpe (at least T, C)   N a multiple of T
//   dwte(tokens(n), :) += dx(n, :)            dwpe(n mod T, :) += dx(n, :)       both with n ascending
// With documents, position(n) stands for n mod T, and dwpe adds in the order of the documents.
// With the vocabulary in blocks, wte has the rows of tokens from `first` on: rows of x with other tokens stay unchanged
// and add nothing to dwte.
// The gradients add in the order of the rows, without atomics: each element of a table has one worker. For tokens,
// worker (k, tile) reads all tokens and adds the rows whose token is k modulo kTokenBuckets. On a GPU each lane of a
// warp tests one token; the warp then adds the rows found, one column per lane, and loads four rows before it adds the
// first, because a load takes as long as hundreds of additions. Returns without fencing.
#pragma once
#include <cstdint>
#include <Kokkos_BitManipulation.hpp>

#include <kozero/core/batch.hpp>
#include <kozero/core/error.hpp>
#include <kozero/core/views.hpp>
#include "kernels/launch/for_each.hpp"
#include "kernels/launch/inputs.hpp"

namespace kozero::kernels {

inline constexpr std::int64_t kTokenBuckets = runs_on_host<Device> ? 16 : 128;

/// Tokens [first, first + count).
struct TokenBlock {
  std::int64_t first, count;

  [[nodiscard]] KOKKOS_FUNCTION bool has(std::int64_t token) const { return token >= first && token < first + count; }
  [[nodiscard]] KOKKOS_FUNCTION bool has(std::int64_t token, std::int64_t bucket) const {
    return has(token) && token % kTokenBuckets == bucket;
  }
};

template <class Space, class T>
static void embedding_forward(const Space& space, Matrix<T> x, Vector<const Token> tokens, MatrixIn<T> wte,
                              std::int64_t first = 0) {
  const auto columns = static_cast<std::int64_t>(x.extent(1));
  const TokenBlock block{first, static_cast<std::int64_t>(wte.extent(0))};
  require(tokens.extent(0) == x.extent(0) && wte.extent(1) == x.extent(1),
          "embedding_forward: tokens (N) or wte (V, C) do not fit x (N, C)");
  for_each_row(
      space, "kozero::embedding_forward", static_cast<std::int64_t>(x.extent(0)),
      KOKKOS_LAMBDA(const RowTeam<Space>& team, std::int64_t n) {
        if (!block.has(tokens(n))) return;
        copy_row(team, row_of(x, n), row_of(wte, tokens(n) - block.first), columns);
      });
}

/// Adds the learned vector of position position_of(n) to row n.
template <class Space, class T, class Positions>
static void add_positions(const Space& space, const std::string& label, Matrix<T> x, MatrixIn<T> wpe,
                          const Positions& position_of) {
  const auto columns = static_cast<std::int64_t>(x.extent(1));
  for_each_row(
      space, label, static_cast<std::int64_t>(x.extent(0)), KOKKOS_LAMBDA(const RowTeam<Space>& team, std::int64_t n) {
        T* const to = row_of(x, n);
        const auto sum = [](float token, float position) { return token + position; };
        assign_row(team, to, columns, sum, to, row_of(wpe, position_of(n)));
      });
}

/// Adds the learned position vectors; `positions` is T.
template <class Space, class T>
void position_forward(const Space& space, Matrix<T> x, MatrixIn<T> wpe, std::int64_t positions) {
  require(wpe.extent(1) == x.extent(1) && static_cast<std::int64_t>(wpe.extent(0)) >= positions,
          "position_forward: wpe (at least T, C) does not fit x (N, C)");
  add_positions(space, "kozero::position_forward", x, wpe, RepeatedPositions{positions});
}

/// The same for rows at given positions, each below T: RowPositions or GivenPositions.
template <class Space, class T, class Positions>
void position_forward_at(const Space& space, Matrix<T> x, MatrixIn<T> wpe, const Positions& row_positions) {
  require(wpe.extent(1) == x.extent(1) && row_positions.positions.extent(0) == x.extent(0),
          "position_forward_at: wpe (at least T, C) or the positions (N) do not fit x (N, C)");
  add_positions(space, "kozero::position_forward_at", x, wpe, row_positions);
}

/// Bit k: whether row first + k exists and its token is in the block's bucket. The same on all lanes of a warp.
template <class Team>
KOKKOS_INLINE_FUNCTION std::uint32_t rows_of_bucket(const Team& team, const Vector<const Token>& tokens,
                                                    std::int64_t first, const TokenBlock& block, std::int64_t bucket) {
  std::uint32_t found = 0;
  Kokkos::parallel_reduce(
      columns_of(team, kLanes),
      [&](std::int64_t lane, std::uint32_t& bits) {
        const std::int64_t row = first + lane;
        const bool mine = row < static_cast<std::int64_t>(tokens.extent(0)) && block.has(tokens(row), bucket);
        bits |= static_cast<std::uint32_t>(mine) << lane;
      },
      Kokkos::BOr<std::uint32_t>(found));
  return found;
}

/// Adds the rows of one bucket to `width` columns of dwte; `to` points into the row of the block's first token, `from`
/// into the first row of dx. Rows of both are `columns` apart.
template <class Team, class T>
KOKKOS_INLINE_FUNCTION void add_bucket(const Team& team, float* to, const T* from, std::int64_t columns,
                                       std::int64_t width, const Vector<const Token>& tokens, const TokenBlock& block,
                                       std::int64_t bucket) {
  const auto rows = static_cast<std::int64_t>(tokens.extent(0));
  KOKKOS_IF_ON_HOST((for (std::int64_t n = 0; n < rows; ++n) {
    const std::int64_t token = tokens(n);
    if (!block.has(token, bucket)) continue;
    const T* const addend = from + n * columns;
    float* const sum = to + (token - block.first) * columns;
    for_each_column(team, width, [=](std::int64_t c) { sum[c] += static_cast<float>(addend[c]); });
  }))
  KOKKOS_IF_ON_DEVICE((for (std::int64_t first = 0; first < rows; first += kLanes) {
    std::uint32_t found = rows_of_bucket(team, tokens, first, block, bucket);
    while (found != 0) {
      constexpr int kAhead = 4;
      std::int64_t row[kAhead];  // -1: none
      KOZERO_UNROLLED
      for (int k = 0; k < kAhead; ++k) {
        row[k] = found != 0 ? first + Kokkos::Experimental::countr_zero_builtin(found) : -1;
        found &= found - 1;
      }
      for_each_column(team, width, [=](std::int64_t c) {
        float value[kAhead];
        KOZERO_UNROLLED
        for (int k = 0; k < kAhead; ++k) value[k] = row[k] < 0 ? 0.0F : static_cast<float>(from[row[k] * columns + c]);
        KOZERO_UNROLLED
        for (int k = 0; k < kAhead; ++k) {
          if (row[k] >= 0) to[(tokens(row[k]) - block.first) * columns + c] += value[k];
        }
      });
    }
  }))
}

template <class Space, class T>
static void embedding_backward(const Space& space, Matrix<float> dwte, Matrix<const T> dx, Vector<const Token> tokens,
                               std::int64_t first = 0) {
  const auto columns = static_cast<std::int64_t>(dx.extent(1));
  const TokenBlock block{first, static_cast<std::int64_t>(dwte.extent(0))};
  require(tokens.extent(0) == dx.extent(0) && dwte.extent(1) == dx.extent(1),
          "embedding_backward: tokens (N) or dwte (V, C) do not fit dx (N, C)");
  constexpr std::int64_t kTile = runs_on_host<Space> ? 512 : kLanes;
  const std::int64_t tiles = (columns + kTile - 1) / kTile;
  for_each_row(
      space, "kozero::embedding_backward", kTokenBuckets * tiles,
      KOKKOS_LAMBDA(const RowTeam<Space>& team, std::int64_t item) {
        const std::int64_t bucket = item / tiles;
        const std::int64_t column = item % tiles * kTile;
        const std::int64_t width = column + kTile < columns ? kTile : columns - column;
        add_bucket(team, dwte.data() + column, dx.data() + column, columns, width, tokens, block, bucket);
      });
}

/// Adds `count` rows to `to`, in order; they begin at `from` and lie `stride` elements apart.
template <class Team, class T>
KOKKOS_INLINE_FUNCTION void add_rows(const Team& team, float* to, const T* from, std::int64_t columns,
                                     std::int64_t count, std::int64_t stride) {
  KOKKOS_IF_ON_HOST((for (std::int64_t n = 0; n < count; ++n) {
    const T* const addend = from + n * stride;
    for_each_column(team, columns, [=](std::int64_t c) { to[c] += static_cast<float>(addend[c]); });
  }))
  KOKKOS_IF_ON_DEVICE((const bool packed = is_aligned(to, from) && stride % kPackOf<T> == 0;
                       for_each_pack<kPackOf<T>>(team, columns, packed, [=](auto width, std::int64_t c) {
                         constexpr int kCount = decltype(width)::value;
                         Pack<kCount> sum = load_pack<kCount>(to + c);
                         KOZERO_UNROLLED_BY(4)
                         for (std::int64_t n = 0; n < count; ++n) {
                           const Pack<kCount> addend = load_pack<kCount>(from + n * stride + c);
                           KOZERO_UNROLLED
                           for (int k = 0; k < kCount; ++k) sum.x[k] += addend.x[k];
                         }
                         store_pack(to + c, sum);
                       });))
}

template <class Space, class T>
static void position_backward(const Space& space, Matrix<float> dwpe, Matrix<const T> dx, std::int64_t positions) {
  const auto rows = static_cast<std::int64_t>(dx.extent(0));
  const auto columns = static_cast<std::int64_t>(dx.extent(1));
  require(dwpe.extent(1) == dx.extent(1) && static_cast<std::int64_t>(dwpe.extent(0)) >= positions,
          "position_backward: dwpe (at least T, C) does not fit dx (N, C)");
  for_each_row(
      space, "kozero::position_backward", positions, KOKKOS_LAMBDA(const RowTeam<Space>& team, std::int64_t t) {
        add_rows(team, row_of(dwpe, t), row_of(dx, t), columns, rows / positions, positions * columns);
      });
}

/// The same with positions that begin again at each document.
template <class Space, class T>
static void position_backward(const Space& space, Matrix<float> dwpe, Matrix<const T> dx, std::int64_t positions,
                              const Documents& documents) {
  const auto columns = static_cast<std::int64_t>(dx.extent(1));
  require(dwpe.extent(1) == dx.extent(1) && static_cast<std::int64_t>(dwpe.extent(0)) >= documents.longest,
          "position_backward: dwpe (at least the longest document's tokens, C) does not fit dx (N, C)");
  const auto count = static_cast<std::int64_t>(documents.spans.extent(0));
  for_each_row(
      space, "kozero::position_backward::documents", documents.longest,
      KOKKOS_LAMBDA(const RowTeam<Space>& team, std::int64_t t) {
        for (std::int64_t i = 0; i < count && documents.spans(i).count > t; ++i) {  // the longest come first
          const std::int64_t row = documents.spans(i).sequence * positions + documents.spans(i).first + t;
          add_rows(team, row_of(dwpe, t), row_of(dx, row), columns, 1, columns);
        }
      });
}

}  // namespace kozero::kernels
