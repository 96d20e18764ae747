// SPDX-FileCopyrightText: The KoZeRO authors
// SPDX-License-Identifier: Apache-2.0
// attention_teams.hpp: attention with a team of threads for each block of rows of a head; it runs on every space.
//   forward   the team of a block of queries loops over the blocks of keys up to the diagonal, with a running maximum
//             m and sum l per row:
//             m' = max(m, s),  l' = e^(m - m') l + sum e^(s - m'),  y' = e^(m - m') y + e^(s - m') v
//   backward  attention_teams_backward.hpp
// A block's rows are in scratch memory as floats (a GPU's shared memory), and a team is a grid of kGridRows x
// kGridColumns threads: thread (a, b) has the scores of rows a, a + kGridRows, ... with columns b, b + kGridColumns,
// ..., and the same of the outputs, in registers. On a host the grid is one thread, and all of this is loops. Every
// output has one owner and one order of sums: no atomics. The contract is attention.hpp's. Runs on `space`; returns
// without fencing. Milakov, Gimelshein 2018, arXiv:1805.02867 (the running sum); Dao et al. 2022, arXiv:2205.14135.
#pragma once
#include <cstdint>
#include <Kokkos_Core.hpp>
#include <string>

#include <kozero/core/error.hpp>
#include <kozero/core/portable_math.hpp>
#include "kernels/attention/attention.hpp"
#include "kernels/launch/for_each.hpp"
#include "kernels/launch/packs.hpp"
#include "kernels/launch/vector_math.hpp"

namespace kozero::kernels {

/// The teams of a kernel: one per block of `rows` positions of a document, and head. With documents a few teams have no
/// block: document i has the slots [before(i) / rows + i, before(i+1) / rows + i + 1), which are enough for its blocks.
struct TeamBlocks {
  struct Block {
    DocumentSpan document;
    std::int64_t head;
    std::int64_t nth;     ///< of the document's blocks; `blocks` or more: none
    std::int64_t blocks;  ///< of the document
  };

  AttentionShape shape;
  std::int64_t heads;
  std::int64_t rows;

  [[nodiscard]] KOKKOS_FUNCTION std::int64_t blocks_of(std::int64_t positions) const {
    return (positions + rows - 1) / rows;
  }
  [[nodiscard]] std::int64_t num_teams() const {
    const std::int64_t slots = shape.documents.given() ? shape.rows() / rows + shape.num_documents()
                                                       : shape.batch * blocks_of(shape.positions);
    return heads * slots;
  }

  [[nodiscard]] KOKKOS_FUNCTION Block of_team(std::int64_t team) const {
    if (shape.documents.given()) return of_documents(team / heads, team % heads);
    const std::int64_t blocks = blocks_of(shape.positions);
    return {shape.document(team / blocks / heads), team / blocks % heads, team % blocks, blocks};
  }

 private:
  /// The last document whose first slot is at most `slot`.
  [[nodiscard]] KOKKOS_FUNCTION Block of_documents(std::int64_t slot, std::int64_t head) const {
    std::int64_t low = 0;
    std::int64_t high = shape.num_documents();
    while (high - low > 1) {
      const std::int64_t middle = (low + high) / 2;
      (shape.documents.spans[middle].before / rows + middle <= slot ? low : high) = middle;
    }
    const DocumentSpan document = shape.documents.spans[low];
    return {document, head, slot - (document.before / rows + low), blocks_of(document.count)};
  }
};

/// The threads of a team, as a grid: four warps on a GPU, one thread on a host.
template <int kGridRows, int kGridColumns>
struct TeamThreads {
  static constexpr int kRows = kGridRows;
  static constexpr int kColumns = kGridColumns;
};
template <class Space>
using ThreadsOn = std::conditional_t<runs_on_host<Space>, TeamThreads<1, 1>, TeamThreads<16, 8>>;

/// The distribution of kRows x kColumns numbers over a team's threads, at most one thread per row and column.
template <class Threads, int kRows, int kColumns>
struct TeamGrid {
  static constexpr int kGridRows = kRows < Threads::kRows ? kRows : Threads::kRows;
  static constexpr int kGridColumns = kColumns < Threads::kColumns ? kColumns : Threads::kColumns;
  static constexpr int kThreads = kGridRows * kGridColumns;
  static constexpr int kOwnRows = kRows / kGridRows;           ///< per thread
  static constexpr int kOwnColumns = kColumns / kGridColumns;  ///< per thread
  static_assert(kOwnRows * kGridRows == kRows && kOwnColumns * kGridColumns == kColumns);
};

/// kRows rows of kDim floats in scratch memory, with one float between rows, so that a column uses every bank.
template <int kRows, int kDim>
struct ScratchBlock {
  static constexpr int kStride = kDim + 1;
  static constexpr int kFloats = kRows * kStride;
  float* at;

  KOKKOS_FUNCTION float* row(int r) const { return at + r * kStride; }

  /// Rows [first, first + kRows) of a head that begins at `from`, `stride` elements from row to row; zeros beyond
  /// `rows` and beyond `dim`.
  template <class Team, class T>
  KOKKOS_FUNCTION void load(const Team& team, const T* from, std::int64_t stride, std::int64_t first, std::int64_t rows,
                            int dim) const {
    for (int i = team.team_rank(); i < kRows * kDim; i += team.team_size()) {
      const int r = i / kDim;
      const int d = i % kDim;
      const bool there = first + r < rows && d < dim;
      row(r)[d] = there ? static_cast<float>(from[(first + r) * stride + d]) : 0.0F;
    }
  }
};

/// scores[a][b] = rows a of A . rows b of B, of the thread at (mine, other) of the grid.
template <class Grid, class A, class B>
KOKKOS_INLINE_FUNCTION void block_scores(float (&scores)[Grid::kOwnRows][Grid::kOwnColumns], const A& of_rows,
                                         const B& of_columns, int mine, int other, int dim) {
  KOZERO_UNROLLED
  for (int a = 0; a < Grid::kOwnRows; ++a) {
    KOZERO_UNROLLED
    for (int b = 0; b < Grid::kOwnColumns; ++b) scores[a][b] = 0.0F;
  }
  for (int d = 0; d < dim; ++d) {
    KOZERO_UNROLLED
    for (int a = 0; a < Grid::kOwnRows; ++a) {
      const float left = of_rows.row(mine + a * Grid::kGridRows)[d];
      KOZERO_UNROLLED
      for (int b = 0; b < Grid::kOwnColumns; ++b) {
        scores[a][b] += left * of_columns.row(other + b * Grid::kGridColumns)[d];
      }
    }
  }
}

/// sums[a][e] += sum over c < columns of weights(row a, c) values(c, column e), of the thread at (mine, other).
template <class Grid, class Weights, class Values>
KOKKOS_INLINE_FUNCTION void add_weighted(float (&sums)[Grid::kOwnRows][Grid::kOwnColumns], const Weights& weights,
                                         const Values& values, int columns, int mine, int other) {
  for (int c = 0; c < columns; ++c) {
    KOZERO_UNROLLED
    for (int a = 0; a < Grid::kOwnRows; ++a) {
      const float weight = weights.row(mine + a * Grid::kGridRows)[c];
      KOZERO_UNROLLED
      for (int e = 0; e < Grid::kOwnColumns; ++e) sums[a][e] += weight * values.row(c)[other + e * Grid::kGridColumns];
    }
  }
}

/// Forward for heads of at most kDim channels.
template <class Space, class Threads, class T, int kDim>
class TeamForward {
 public:
  static constexpr int kQueries = kDim <= 64 ? 64 : (kDim <= 128 ? 32 : 16);
  static constexpr int kKeys = kDim <= 128 ? 32 : 16;
  using Scores = TeamGrid<Threads, kQueries, kKeys>;
  using Outputs = TeamGrid<Threads, kQueries, kDim>;
  static_assert(Scores::kThreads == Outputs::kThreads);
  using QueryBlock = ScratchBlock<kQueries, kDim>;
  using KeyBlock = ScratchBlock<kKeys, kDim>;
  using Weights = ScratchBlock<kQueries, kKeys>;
  static constexpr int kPartials = kQueries * Scores::kGridColumns;  // (row, thread)
  static constexpr int kScratchFloats = QueryBlock::kFloats + KeyBlock::kFloats + Weights::kFloats + kPartials;

  TeamForward(Matrix<T> y, Matrix<float> logsumexp, MatrixIn<T> qkv, const AttentionShape& shape)
      : y_(y), logsumexp_(logsumexp), qkv_(qkv), shape_(shape) {}

  [[nodiscard]] std::int64_t teams() const { return blocks().num_teams(); }

  KOKKOS_FUNCTION void operator()(const RowTeam<Space>& team) const {
    const TeamBlocks::Block block = blocks().of_team(team.league_rank());
    if (block.nth >= block.blocks) return;
    auto* const scratch = static_cast<float*>(team.team_scratch(0).get_shmem(kScratchFloats * sizeof(float)));
    // The last blocks begin first, since they have the most keys.
    const ThreadTile tile{block.document,
                          shape_.row_of(block.document),
                          block.head,
                          (block.blocks - 1 - block.nth) * kQueries,
                          team.team_rank() / Scores::kGridColumns,
                          team.team_rank() % Scores::kGridColumns};
    const Memory memory{{scratch},
                        {scratch + QueryBlock::kFloats},
                        {scratch + QueryBlock::kFloats + KeyBlock::kFloats},
                        scratch + QueryBlock::kFloats + KeyBlock::kFloats + Weights::kFloats};
    attend(team, tile, memory);
  }

 private:
  struct ThreadTile {
    DocumentSpan document;
    std::int64_t begin;  // the row of its first token
    std::int64_t head;
    std::int64_t first;  // query of the block
    int row, column;     // of this thread in the grid
  };
  struct Memory {
    QueryBlock queries;
    KeyBlock keys;  // or values
    Weights weights;
    float* partials;
  };
  struct Running {
    float largest[Scores::kOwnRows];
    float sum[Scores::kOwnRows];  // of this thread's columns
    float outputs[Outputs::kOwnRows][Outputs::kOwnColumns];
  };

  KOKKOS_FUNCTION void attend(const RowTeam<Space>& team, const ThreadTile& tile, const Memory& memory) const {
    const std::int64_t stride = shape_.qkv_columns();
    const auto dim = static_cast<int>(shape_.head_dim);
    const std::int64_t kv = tile.head / shape_.group();
    const T* const k = qkv_.data() + shape_.key_of(tile.begin, kv);
    const T* const v = qkv_.data() + shape_.value_of(tile.begin, kv);
    const std::int64_t count = tile.document.count;
    memory.queries.load(team, qkv_.data() + shape_.query(tile.begin, tile.head), stride, tile.first, count, dim);
    Running running = begun();
    for (std::int64_t key = 0; key < tile.first + kQueries && key < count; key += kKeys) {
      float scores[Scores::kOwnRows][Scores::kOwnColumns];
      team.team_barrier();
      memory.keys.load(team, k, stride, key, count, dim);
      team.team_barrier();
      block_scores<Scores>(scores, memory.queries, memory.keys, tile.row, tile.column, dim);
      mask(scores, tile, key);
      share_largest(scores, tile, memory);
      team.team_barrier();
      memory.keys.load(team, v, stride, key, count, dim);
      weigh(running, scores, tile, memory, key);
      team.team_barrier();
      add_weighted<Outputs>(running.outputs, memory.weights, memory.keys, kKeys, tile.row, tile.column);
    }
    store(team, running, tile, memory);
  }

  KOKKOS_FUNCTION static Running begun() {
    Running running;
    KOZERO_UNROLLED
    for (int a = 0; a < Scores::kOwnRows; ++a) {
      running.largest[a] = -Kokkos::Experimental::infinity_v<float>;
      running.sum[a] = 0.0F;
      KOZERO_UNROLLED
      for (float& output : running.outputs[a]) output = 0.0F;
    }
    return running;
  }

  /// Scales the scores; -infinity if the key is after the query.
  KOKKOS_FUNCTION void mask(float (&scores)[Scores::kOwnRows][Scores::kOwnColumns], const ThreadTile& tile,
                            std::int64_t key) const {
    const float scale = shape_.scale();
    KOZERO_UNROLLED
    for (int a = 0; a < Scores::kOwnRows; ++a) {
      KOZERO_UNROLLED
      for (int b = 0; b < Scores::kOwnColumns; ++b) {
        const std::int64_t i = tile.first + tile.row + a * Scores::kGridRows;
        const std::int64_t j = key + tile.column + b * Scores::kGridColumns;
        scores[a][b] = j <= i ? scale * scores[a][b] : -Kokkos::Experimental::infinity_v<float>;
      }
    }
  }

  KOKKOS_FUNCTION static void share_largest(const float (&scores)[Scores::kOwnRows][Scores::kOwnColumns],
                                            const ThreadTile& tile, const Memory& memory) {
    KOZERO_UNROLLED
    for (int a = 0; a < Scores::kOwnRows; ++a) {
      float largest = scores[a][0];
      KOZERO_UNROLLED
      for (const float score : scores[a]) largest = Kokkos::max(largest, score);
      memory.partials[(tile.row + a * Scores::kGridRows) * Scores::kGridColumns + tile.column] = largest;
    }
  }

  /// Writes the unnormalized probabilities of this block of keys to scratch, and updates the running sums.
  KOKKOS_FUNCTION void weigh(Running& running, const float (&scores)[Scores::kOwnRows][Scores::kOwnColumns],
                             const ThreadTile& tile, const Memory& memory, std::int64_t key) const {
    KOZERO_UNROLLED
    for (int a = 0; a < Scores::kOwnRows; ++a) {
      const int row = tile.row + a * Scores::kGridRows;
      float largest = running.largest[a];
      KOZERO_UNROLLED
      for (int c = 0; c < Scores::kGridColumns; ++c) {
        largest = Kokkos::max(largest, memory.partials[row * Scores::kGridColumns + c]);
      }
      const float shrink = fast_exp(running.largest[a] - largest);
      running.largest[a] = largest;
      running.sum[a] *= shrink;
      KOZERO_UNROLLED
      for (float& output : running.outputs[a]) output *= shrink;
      KOZERO_UNROLLED
      for (int b = 0; b < Scores::kOwnColumns; ++b) {
        const int column = tile.column + b * Scores::kGridColumns;
        const float p = fast_exp(scores[a][b] - largest);
        running.sum[a] += p;
        memory.weights.row(row)[column] =
            p * shape_.kept(tile.document.sequence, tile.head, tile.document.first + tile.first + row,
                            tile.document.first + key + column);
      }
    }
  }

  KOKKOS_FUNCTION void store(const RowTeam<Space>& team, const Running& running, const ThreadTile& tile,
                             const Memory& memory) const {
    KOZERO_UNROLLED
    for (int a = 0; a < Scores::kOwnRows; ++a) {
      memory.partials[(tile.row + a * Scores::kGridRows) * Scores::kGridColumns + tile.column] = running.sum[a];
    }
    team.team_barrier();
    T* const out = y_.data() + shape_.output(tile.begin, tile.head);
    float* const logsumexp = logsumexp_.data() + shape_.logsumexp_of(tile.document, tile.head);
    KOZERO_UNROLLED
    for (int a = 0; a < Scores::kOwnRows; ++a) {
      const int row = tile.row + a * Scores::kGridRows;
      const std::int64_t i = tile.first + row;
      if (i >= tile.document.count) continue;
      float sum = 0.0F;
      KOZERO_UNROLLED
      for (int c = 0; c < Scores::kGridColumns; ++c) sum += memory.partials[row * Scores::kGridColumns + c];
      KOZERO_UNROLLED
      for (int e = 0; e < Outputs::kOwnColumns; ++e) {
        const int d = tile.column + e * Outputs::kGridColumns;
        if (d < shape_.head_dim) out[i * shape_.y_columns() + d] = static_cast<T>(running.outputs[a][e] / sum);
      }
      if (tile.column == 0) logsumexp[i] = running.largest[a] + portable_log(sum);
    }
  }

  [[nodiscard]] KOKKOS_FUNCTION TeamBlocks blocks() const { return {shape_, shape_.heads, kQueries}; }

  Matrix<T> y_;
  Matrix<float> logsumexp_;
  MatrixIn<T> qkv_;
  AttentionShape shape_;
};

/// Runs a class like TeamForward, one call per team.
template <class Space, class Grid, class Kernel>
void run_teams(const Space& space, const std::string& label, const Kernel& kernel) {
  if (kernel.teams() == 0) return;
  auto policy = Kokkos::TeamPolicy<Space>(space, static_cast<int>(kernel.teams()), Grid::kThreads);
  policy.set_scratch_size(0, Kokkos::PerTeam(static_cast<int>(Kernel::kScratchFloats * sizeof(float))));
  Kokkos::parallel_for(label, policy, kernel);
}

/// body(std::integral_constant<int, kDim>) with the smallest block width >= head_dim.
template <class Body>
void with_head_width(std::int64_t head_dim, const Body& body) {
  require(head_dim <= 256, "attention: heads of more than 256 channels are not built for this device");
  if (head_dim <= 64) return body(std::integral_constant<int, 64>());
  if (head_dim <= 128) return body(std::integral_constant<int, 128>());
  body(std::integral_constant<int, 256>());
}

template <class Threads, class Space, class T>
void attention_teams_forward(const Space& space, Matrix<T> y, Matrix<float> logsumexp, MatrixIn<T> qkv,
                             const AttentionShape& shape) {
  require_attention(shape, y, logsumexp, qkv);
  if (shape.rows() == 0) return;
  with_head_width(shape.head_dim, [&](auto width) {
    using Forward = TeamForward<Space, Threads, T, width()>;
    run_teams<Space, typename Forward::Scores>(space, "kozero::attention_forward", Forward(y, logsumexp, qkv, shape));
  });
}

}  // namespace kozero::kernels
