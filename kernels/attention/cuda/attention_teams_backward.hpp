// SPDX-FileCopyrightText: The KoZeRO authors
// SPDX-License-Identifier: Apache-2.0
// attention_teams_backward.hpp: the gradient of attention, with a team of threads for each block of rows of a head.
//   delta(i) = dy(i,:) . y(i,:)      p(i,j) = exp(s(i,j) - l(i))
//   ds(i,j) = p(i,j) (m(i,j) dy(i,:) . v(j,:) - delta(i)) / sqrt(D)
//   the team of a block of queries:  own q, dy    loops over k, v     dq(i,:) = sum_j ds(i,j) k(j,:)
//   the team of a block of keys:     own k, v     loops over q, dy    dk(j,:) = sum_i ds(i,j) q(i,:)
//                                                                     dv(j,:) = sum_i m(i,j) p(i,j) dy(i,:)
// So both have the same loop: with the own pair (A, C) and the other's (B, D), scores A B^T and products C D^T, sums of
// ds B, and for keys sums of m p D. Each computes the probabilities again. Blocks and threads as in
// attention_teams.hpp; the workspace has delta, B H T floats. Runs on `space`; returns without fencing.
#pragma once
#include "kernels/attention/cuda/attention_teams.hpp"

namespace kozero::kernels {

/// The inputs of both kinds of team.
template <class T>
struct AttentionGradient {
  AttentionShape shape;
  const T* qkv;
  const T* dy;
  const float* logsumexp;
  const float* delta;
};

/// The gradient that a team computes.
enum class Own { queries, keys };

/// Backward of one side, for heads of at most kDim channels.
template <class Space, class Threads, class T, int kDim, Own kOwn>
class TeamBackward {
 public:
  static constexpr int kRows = kDim <= 64 ? 32 : (kDim <= 128 ? 16 : 8);  // of both blocks
  using Scores = TeamGrid<Threads, kRows, kRows>;
  using Outputs = TeamGrid<Threads, kRows, kDim>;
  static_assert(Scores::kThreads == Outputs::kThreads);
  using Block = ScratchBlock<kRows, kDim>;
  using Weights = ScratchBlock<kRows, kRows>;
  static constexpr int kScratchFloats = 4 * Block::kFloats + Weights::kFloats;

  TeamBackward(Matrix<T> dqkv, const AttentionGradient<T>& gradient)
      : dqkv_(dqkv),
        gradient_(gradient),
        shape_(gradient.shape),
        heads_(kOwn == Own::queries ? shape_.heads : shape_.kv_heads) {}

  [[nodiscard]] std::int64_t teams() const { return blocks().num_teams(); }

  KOKKOS_FUNCTION void operator()(const RowTeam<Space>& team) const {
    const TeamBlocks::Block block = blocks().of_team(team.league_rank());
    if (block.nth >= block.blocks) return;
    auto* const scratch = static_cast<float*>(team.team_scratch(0).get_shmem(kScratchFloats * sizeof(float)));
    const Memory memory{{scratch},
                        {scratch + Block::kFloats},
                        {scratch + 2 * Block::kFloats},
                        {scratch + 3 * Block::kFloats},
                        {scratch + 4 * Block::kFloats}};
    // The blocks with the most work begin first: the last blocks of queries, the first blocks of keys.
    const std::int64_t nth = kOwn == Own::queries ? block.blocks - 1 - block.nth : block.nth;
    const ThreadTile tile{
        block.document, shape_.row_of(block.document),           block.head,
        nth * kRows,    team.team_rank() / Scores::kGridColumns, team.team_rank() % Scores::kGridColumns};
    if constexpr (kOwn == Own::queries) {
      of_queries(team, tile, memory);
    } else {
      of_keys(team, tile, memory);
    }
  }

 private:
  struct ThreadTile {
    DocumentSpan document;
    std::int64_t begin;  // the row of its first token
    std::int64_t head;   // of queries or of keys
    std::int64_t first;  // row of the own block
    int row, column;     // of this thread in the grid
  };
  struct Memory {
    Block own, own_paired, other, other_paired;  // q, dy and k, v; or k, v and q, dy
    Weights weights;
  };
  using Sums = float[Outputs::kOwnRows][Outputs::kOwnColumns];
  using Numbers = float[Scores::kOwnRows][Scores::kOwnColumns];

  KOKKOS_FUNCTION void of_queries(const RowTeam<Space>& team, const ThreadTile& tile, const Memory& memory) const {
    const std::int64_t kv = tile.head / shape_.group();
    load_queries(team, memory.own, memory.own_paired, tile, tile.head, tile.first);
    Sums dq = {};
    for (std::int64_t key = 0; key < tile.first + kRows && key < tile.document.count; key += kRows) {
      Numbers kept_p, ds;
      team.team_barrier();
      load_keys(team, memory.other, memory.other_paired, tile, kv, key);
      team.team_barrier();
      probabilities(kept_p, ds, tile, memory, tile.head, key);
      share(ds, tile, memory);
      team.team_barrier();
      add_weighted<Outputs>(dq, memory.weights, memory.other, kRows, tile.row, tile.column);
    }
    store(dq, tile, shape_.query(tile.begin, tile.head));
  }

  KOKKOS_FUNCTION void of_keys(const RowTeam<Space>& team, const ThreadTile& tile, const Memory& memory) const {
    load_keys(team, memory.own, memory.own_paired, tile, tile.head, tile.first);
    Sums dk = {};
    Sums dv = {};
    for (std::int64_t h = tile.head * shape_.group(); h < (tile.head + 1) * shape_.group(); ++h) {
      for (std::int64_t query = tile.first; query < tile.document.count; query += kRows) {
        Numbers kept_p, ds;
        team.team_barrier();
        load_queries(team, memory.other, memory.other_paired, tile, h, query);
        team.team_barrier();
        probabilities(kept_p, ds, tile, memory, h, query);
        share(ds, tile, memory);
        team.team_barrier();
        add_weighted<Outputs>(dk, memory.weights, memory.other, kRows, tile.row, tile.column);
        team.team_barrier();
        share(kept_p, tile, memory);
        team.team_barrier();
        add_weighted<Outputs>(dv, memory.weights, memory.other_paired, kRows, tile.row, tile.column);
      }
    }
    store(dk, tile, shape_.key_of(tile.begin, tile.head));
    store(dv, tile, shape_.value_of(tile.begin, tile.head));
  }

  KOKKOS_FUNCTION void load_queries(const RowTeam<Space>& team, const Block& q, const Block& dy, const ThreadTile& tile,
                                    std::int64_t head, std::int64_t first) const {
    const auto dim = static_cast<int>(shape_.head_dim);
    const std::int64_t count = tile.document.count;
    q.load(team, gradient_.qkv + shape_.query(tile.begin, head), shape_.qkv_columns(), first, count, dim);
    dy.load(team, gradient_.dy + shape_.output(tile.begin, head), shape_.y_columns(), first, count, dim);
  }

  KOKKOS_FUNCTION void load_keys(const RowTeam<Space>& team, const Block& k, const Block& v, const ThreadTile& tile,
                                 std::int64_t kv, std::int64_t first) const {
    const auto dim = static_cast<int>(shape_.head_dim);
    const std::int64_t count = tile.document.count;
    k.load(team, gradient_.qkv + shape_.key_of(tile.begin, kv), shape_.qkv_columns(), first, count, dim);
    v.load(team, gradient_.qkv + shape_.value_of(tile.begin, kv), shape_.qkv_columns(), first, count, dim);
  }

  /// m p and ds of this thread's rows and columns: own rows, by the other's rows from `other_first` on. Zero for a key
  /// after its query, and for rows that do not exist.
  KOKKOS_FUNCTION void probabilities(Numbers& kept_p, Numbers& ds, const ThreadTile& tile, const Memory& memory,
                                     std::int64_t head, std::int64_t other_first) const {
    const auto dim = static_cast<int>(shape_.head_dim);
    const float scale = shape_.scale();
    const std::int64_t rows_of_head = shape_.logsumexp_of(tile.document, head);
    const std::int64_t begin = tile.document.first;
    block_scores<Scores>(kept_p, memory.own, memory.other, tile.row, tile.column, dim);
    block_scores<Scores>(ds, memory.own_paired, memory.other_paired, tile.row, tile.column, dim);
    KOZERO_UNROLLED
    for (int a = 0; a < Scores::kOwnRows; ++a) {
      KOZERO_UNROLLED
      for (int b = 0; b < Scores::kOwnColumns; ++b) {
        const std::int64_t own = tile.first + tile.row + a * Scores::kGridRows;
        const std::int64_t other = other_first + tile.column + b * Scores::kGridColumns;
        const std::int64_t i = kOwn == Own::queries ? own : other;
        const std::int64_t j = kOwn == Own::queries ? other : own;
        const bool seen = j <= i && i < tile.document.count;
        const std::int64_t n = seen ? rows_of_head + i : 0;
        const float kept = seen ? shape_.kept(tile.document.sequence, head, begin + i, begin + j) : 0.0F;
        const float p = seen ? fast_exp(scale * kept_p[a][b] - gradient_.logsumexp[n]) : 0.0F;
        ds[a][b] = scale * p * (kept * ds[a][b] - gradient_.delta[n]);
        kept_p[a][b] = kept * p;
      }
    }
  }

  KOKKOS_FUNCTION static void share(const Numbers& numbers, const ThreadTile& tile, const Memory& memory) {
    KOZERO_UNROLLED
    for (int a = 0; a < Scores::kOwnRows; ++a) {
      float* const row = memory.weights.row(tile.row + a * Scores::kGridRows);
      KOZERO_UNROLLED
      for (int b = 0; b < Scores::kOwnColumns; ++b) row[tile.column + b * Scores::kGridColumns] = numbers[a][b];
    }
  }

  KOKKOS_FUNCTION void store(const Sums& sums, const ThreadTile& tile, std::int64_t head_begin) const {
    T* const out = dqkv_.data() + head_begin;
    KOZERO_UNROLLED
    for (int a = 0; a < Outputs::kOwnRows; ++a) {
      const std::int64_t row = tile.first + tile.row + a * Outputs::kGridRows;
      KOZERO_UNROLLED
      for (int e = 0; e < Outputs::kOwnColumns; ++e) {
        const int d = tile.column + e * Outputs::kGridColumns;
        if (row < tile.document.count && d < shape_.head_dim) {
          out[row * shape_.qkv_columns() + d] = static_cast<T>(sums[a][e]);
        }
      }
    }
  }

  [[nodiscard]] KOKKOS_FUNCTION TeamBlocks blocks() const { return {shape_, heads_, kRows}; }

  Matrix<T> dqkv_;
  AttentionGradient<T> gradient_;
  AttentionShape shape_;
  std::int64_t heads_;
};

template <class Space, class T>
static void attention_delta(const Space& space, Vector<float> delta, MatrixIn<T> dy, MatrixIn<T> y,
                            const AttentionShape& shape) {
  for_each_row(
      space, "kozero::attention_backward::delta", shape.batch * shape.heads * shape.positions,
      KOKKOS_LAMBDA(const RowTeam<Space>& team, std::int64_t n) {
        const std::int64_t sequence = n / shape.positions / shape.heads;
        const std::int64_t row = sequence * shape.positions + n % shape.positions;
        const std::int64_t at = shape.output(row, n / shape.positions % shape.heads);
        const T* const dy_row = dy.data() + at;
        const T* const y_row = y.data() + at;
        const auto product = [](float slope, float value) { return slope * value; };
        const float sum = row_sum(team, shape.head_dim, product, dy_row, y_row);
        Kokkos::single(Kokkos::PerThread(team), [&]() { delta(n) = sum; });
      });
}

template <class Threads, class Space, class T>
void attention_teams_backward(const Space& space, Matrix<T> dqkv, MatrixIn<T> dy, MatrixIn<T> y,
                              Matrix<const float> logsumexp, MatrixIn<T> qkv, const AttentionShape& shape,
                              Vector<float> workspace) {
  require_attention(shape, y, logsumexp, qkv);
  require_attention(shape, dy, logsumexp, dqkv);
  require(static_cast<std::int64_t>(workspace.extent(0)) >= shape.batch * shape.heads * shape.positions,
          "attention: the workspace is too small");
  if (shape.rows() == 0) return;
  attention_delta<Space, T>(space, workspace, dy, y, shape);
  const AttentionGradient<T> gradient{shape, qkv.data(), dy.data(), logsumexp.data(), workspace.data()};
  with_head_width(shape.head_dim, [&](auto width) {
    using OfQueries = TeamBackward<Space, Threads, T, width(), Own::queries>;
    using OfKeys = TeamBackward<Space, Threads, T, width(), Own::keys>;
    run_teams<Space, typename OfQueries::Scores>(space, "kozero::attention_backward::query", OfQueries(dqkv, gradient));
    run_teams<Space, typename OfKeys::Scores>(space, "kozero::attention_backward::key", OfKeys(dqkv, gradient));
  });
}

}  // namespace kozero::kernels
