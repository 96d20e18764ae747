// SPDX-FileCopyrightText: The KoZeRO authors
// SPDX-License-Identifier: Apache-2.0
// attention_cached.hpp: attention of new rows over cached keys and values, for generation.
//   s(n,h,j) = q(n,h) . K(b,kv,j) / sqrt(D)          y(n,h) = sum_j softmax_j(s) V(b,kv,j)
//   j <= position(n), b = sequence(n), kv = h / (H / KV)
//   qkv (N, (H + 2 KV) D)    y (N, H D)    K (B, KV, S/32, D, 32)    V (B, KV, S, D)    S a multiple of 32
// Keys are stored in tiles of 32 positions with the position innermost: scores of 32 keys are one SIMD accumulator or
// one warp, and both K and V are read in the order of memory. The positions of a row are cut into chunks, which are
// computed in parallel with the heads; a second dispatch adds the chunks of a row, each with its maximum and sum (Dao,
// Haziza, Massa, Sizov 2023, "Flash-Decoding"). A row's bits depend on its own position and S alone, not on the other
// rows nor on the number of threads. Sums are in float. Runs on `space`; returns without fencing.
#pragma once
#include <algorithm>

#include "kernels/attention/attention.hpp"
#include "kernels/launch/for_each.hpp"
#include "kernels/launch/inputs.hpp"
#include "kernels/launch/reduce.hpp"
#include "kernels/launch/vector_math.hpp"

namespace kozero::kernels {

struct CacheShape {
  static constexpr std::int64_t kTile = kLanes;
  std::int64_t sequences = 0;  ///< B
  std::int64_t positions = 0;  ///< S
  std::int64_t kv_heads = 0;
  std::int64_t head_dim = 0;

  /// `wanted` positions, rounded up to whole tiles.
  static constexpr std::int64_t whole_tiles(std::int64_t wanted) { return (wanted + kTile - 1) / kTile * kTile; }
  /// Elements of K, and of V.
  [[nodiscard]] KOKKOS_FUNCTION std::int64_t extent() const { return sequences * kv_heads * positions * head_dim; }
  /// The first element of a head, in K and in V.
  [[nodiscard]] KOKKOS_FUNCTION std::int64_t head(std::int64_t b, std::int64_t kv) const {
    return (b * kv_heads + kv) * positions * head_dim;
  }
  /// Channel d of position j, from the first element of the head in K.
  [[nodiscard]] KOKKOS_FUNCTION std::int64_t key(std::int64_t j, std::int64_t d) const {
    return (j / kTile * head_dim + d) * kTile + j % kTile;
  }

  /// Positions of a chunk: at most 32 chunks per row.
  [[nodiscard]] KOKKOS_FUNCTION std::int64_t chunk() const {
    std::int64_t extent = 256;
    while (extent * 32 < positions) extent *= 2;
    return extent;
  }
  [[nodiscard]] KOKKOS_FUNCTION std::int64_t chunks() const { return (positions + chunk() - 1) / chunk(); }
};

/// Keys and values of all sequences.
template <class T>
struct CachedHeads {
  Vector<T> keys;
  Vector<T> values;
};

/// Scalars of a chunk's partial result, per row and head, after D weighted values.
enum ChunkSlot : std::int64_t { kChunkMaximum, kChunkSum, kChunkWeight, kChunkSlots };

/// Floats of workspace for `rows` rows of `heads` query heads.
inline std::int64_t cached_attention_workspace(const CacheShape& cache, std::int64_t rows, std::int64_t heads) {
  return rows * heads * cache.chunks() * (cache.head_dim + kChunkSlots);
}

/// Copies the key and value heads of each row of qkv into the cache.
template <class Space, class T>
static void append_to_cache(const Space& space, const CachedHeads<T>& heads, const CacheShape& cache, MatrixIn<T> qkv,
                            const RowPositions& row_positions, const AttentionShape& shape) {
  const std::int64_t dim = shape.head_dim;
  T* const keys = heads.keys.data();
  T* const values = heads.values.data();
  const T* const rows = qkv.data();
  for_each_row(
      space, "kozero::append_to_cache", shape.batch, KOKKOS_LAMBDA(const RowTeam<Space>& team, std::int64_t n) {
        const std::int64_t position = row_positions.positions(n);
        for (std::int64_t kv = 0; kv < shape.kv_heads; ++kv) {
          const std::int64_t head = cache.head(row_positions.sequences(n), kv);
          const T* const key = rows + shape.key_of(n, kv);
          T* const to = keys + head;
          for_each_column(team, dim, [=](std::int64_t d) { to[cache.key(position, d)] = key[d]; });
          copy_row(team, values + head + position * dim, rows + shape.value_of(n, kv), dim);
        }
      });
}

/// scores(j) = scale * query . key(j) for j in [0, count); `keys` begins at a tile.
template <class Team, class T>
KOKKOS_INLINE_FUNCTION void key_scores(const Team& team, float* scores, const T* query, const T* keys, float scale,
                                       std::int64_t count, std::int64_t dim) {
  KOKKOS_IF_ON_HOST((static_cast<void>(team); for (std::int64_t first = 0; first < count; first += kLanes) {
    float lanes[kLanes] = {};
    const T* const tile = keys + first * dim;
    for (std::int64_t d = 0; d < dim; ++d) {
      const float q = static_cast<float>(query[d]);
      for (int lane = 0; lane < kLanes; ++lane) lanes[lane] += q * static_cast<float>(tile[d * kLanes + lane]);
    }
    const std::int64_t here = count - first < kLanes ? count - first : kLanes;
    for (std::int64_t lane = 0; lane < here; ++lane) scores[first + lane] = scale * lanes[lane];
  }))
  KOKKOS_IF_ON_DEVICE((for_each_column(team, count, [=](std::int64_t j) {
                         const T* const key = keys + j / kLanes * kLanes * dim + j % kLanes;
                         float sum = 0.0F;
                         for (std::int64_t d = 0; d < dim; ++d) {
                           sum += static_cast<float>(query[d]) * static_cast<float>(key[d * kLanes]);
                         }
                         scores[j] = scale * sum;
                       });))
}

/// out(d) = sum_j weights(j) values(j, d) for d in [0, dim).
template <class Team, class T>
KOKKOS_INLINE_FUNCTION void weighted_values(const Team& team, float* out, const float* weights, const T* values,
                                            std::int64_t count, std::int64_t dim) {
  KOKKOS_IF_ON_HOST((
      static_cast<void>(team); std::int64_t first = 0; for (; first + kLanes <= dim; first += kLanes) {
        float lanes[kLanes] = {};
        for (std::int64_t j = 0; j < count; ++j) {
          const float weight = weights[j];
          const T* const value = values + j * dim + first;
          for (int lane = 0; lane < kLanes; ++lane) lanes[lane] += weight * static_cast<float>(value[lane]);
        }
        for (int lane = 0; lane < kLanes; ++lane) out[first + lane] = lanes[lane];
      } for (; first < dim; ++first) {
        float sum = 0.0F;
        for (std::int64_t j = 0; j < count; ++j) sum += weights[j] * static_cast<float>(values[j * dim + first]);
        out[first] = sum;
      }))
  KOKKOS_IF_ON_DEVICE((for_each_column(team, dim, [=](std::int64_t d) {
                         float sum = 0.0F;
                         for (std::int64_t j = 0; j < count; ++j) {
                           sum += weights[j] * static_cast<float>(values[j * dim + d]);
                         }
                         out[d] = sum;
                       });))
}

/// A worker computes one chunk of positions of one row and head, with its scores in scratch memory.
template <class Space, class T>
struct CachedChunks {
  const T* qkv;
  CachedHeads<const T> heads;
  CacheShape cache;
  AttentionShape shape;
  RowPositions row_positions;
  float* parts;

  [[nodiscard]] std::int64_t num_tasks() const { return shape.batch * shape.heads * cache.chunks(); }
  [[nodiscard]] std::int64_t scratch_bytes() const {
    return (cache.chunk() + kLanes) * static_cast<std::int64_t>(sizeof(float));
  }

  KOKKOS_FUNCTION void operator()(const RowTeam<Space>& team) const {
    const std::int64_t task = static_cast<std::int64_t>(team.league_rank()) * team.team_size() + team.team_rank();
    if (task >= shape.batch * shape.heads * cache.chunks()) return;
    const std::int64_t n = task / cache.chunks() / shape.heads;
    const std::int64_t h = task / cache.chunks() % shape.heads;
    const std::int64_t first = task % cache.chunks() * cache.chunk();
    const std::int64_t seen = row_positions.positions(n) + 1 - first;
    if (seen > 0) attend(team, n, h, first, seen < cache.chunk() ? seen : cache.chunk(), parts + task * part_extent());
  }

  KOKKOS_FUNCTION std::int64_t part_extent() const { return shape.head_dim + kChunkSlots; }

  KOKKOS_FUNCTION void attend(const RowTeam<Space>& team, std::int64_t n, std::int64_t h, std::int64_t first,
                              std::int64_t count, float* part) const {
    const std::int64_t dim = shape.head_dim;
    const std::int64_t begin = cache.head(row_positions.sequences(n), h / shape.group()) + first * dim;
    auto* const scores =
        static_cast<float*>(team.thread_scratch(0).get_shmem(static_cast<std::size_t>(cache.chunk()) * sizeof(float)));
    key_scores(team, scores, qkv + shape.query(n, h), heads.keys.data() + begin, shape.scale(), count, dim);
    const float maximum = row_max(team, count, static_cast<const float*>(scores));
    assign_row(
        team, scores, count, [=](float score) { return fast_exp(score - maximum); }, static_cast<const float*>(scores));
    const float sum = row_sum(
        team, count, [](float p) { return p; }, static_cast<const float*>(scores));
    weighted_values(team, part, scores, heads.values.data() + begin, count, dim);
    once_per_row(team, [=] {
      part[dim + kChunkMaximum] = maximum;
      part[dim + kChunkSum] = sum;
    });
  }
};

/// y of one row and head: its chunks, each weighted by e^(its maximum - the largest) / the sum of all.
template <class Space, class T>
static void add_chunks(const Space& space, Matrix<T> y, const CacheShape& cache, const RowPositions& row_positions,
                       const AttentionShape& shape, float* parts) {
  const std::int64_t dim = shape.head_dim;
  const std::int64_t extent = dim + kChunkSlots;
  for_each_row(
      space, "kozero::attention_cached::add_chunks", shape.batch * shape.heads,
      KOKKOS_LAMBDA(const RowTeam<Space>& team, std::int64_t row) {
        const std::int64_t n = row / shape.heads;
        float* const part = parts + row * cache.chunks() * extent;
        const std::int64_t chunks = row_positions.positions(n) / cache.chunk() + 1;
        float maximum = part[dim + kChunkMaximum];
        for (std::int64_t c = 1; c < chunks; ++c) {
          const float other = part[c * extent + dim + kChunkMaximum];
          maximum = other > maximum ? other : maximum;
        }
        float sum = 0.0F;
        for (std::int64_t c = 0; c < chunks; ++c) {
          const float* const slots = part + c * extent + dim;
          sum += fast_exp(slots[kChunkMaximum] - maximum) * slots[kChunkSum];
        }
        for_each_column(team, chunks, [=](std::int64_t c) {
          float* const slots = part + c * extent + dim;
          slots[kChunkWeight] = fast_exp(slots[kChunkMaximum] - maximum) / sum;
        });
        T* const out = y.data() + shape.output(n, row % shape.heads);
        const auto added = [=](std::int64_t d) {
          float value = 0.0F;
          for (std::int64_t c = 0; c < chunks; ++c)
            value += part[c * extent + dim + kChunkWeight] * part[c * extent + d];
          return value;
        };
        KOKKOS_IF_ON_HOST((store_run(out, dim, added);))
        KOKKOS_IF_ON_DEVICE((for_each_column(team, dim, [=](std::int64_t d) { out[d] = static_cast<T>(added(d)); });))
      });
}

/// `shape` has a batch of N rows of one position each; their keys and values are in the cache already. The workspace
/// has cached_attention_workspace floats.
template <class Space, class T>
void attention_cached(const Space& space, Matrix<T> y, MatrixIn<T> qkv, const CachedHeads<T>& heads,
                      const CacheShape& cache, const RowPositions& row_positions, const AttentionShape& shape,
                      Vector<float> workspace) {
  require(
      static_cast<std::int64_t>(qkv.extent(0)) == shape.batch && shape.positions == 1 &&
          row_positions.num_rows() == shape.batch && static_cast<std::int64_t>(y.extent(1)) == shape.y_columns() &&
          static_cast<std::int64_t>(heads.keys.extent(0)) >= cache.extent() &&
          static_cast<std::int64_t>(workspace.extent(0)) >= cached_attention_workspace(cache, shape.batch, shape.heads),
      "attention_cached: an array does not have the extents of the shape");
  if (shape.batch == 0) return;
  const CachedChunks<Space, T> chunks{qkv.data(),      {heads.keys, heads.values}, cache, shape, row_positions,
                                      workspace.data()};
  constexpr int kTeam = runs_on_host<Space> ? 1 : kRowsPerBlock;
  constexpr int kVector = runs_on_host<Space> ? 1 : kLanes;
  const auto teams = static_cast<int>((chunks.num_tasks() + kTeam - 1) / kTeam);
  Kokkos::TeamPolicy<Space, Kokkos::Schedule<Kokkos::Dynamic>> policy(space, teams, kTeam, kVector);
  policy.set_scratch_size(0, Kokkos::PerThread(static_cast<int>(chunks.scratch_bytes())));
  Kokkos::parallel_for("kozero::attention_cached", policy, chunks);
  add_chunks(space, y, cache, row_positions, shape, workspace.data());
}

}  // namespace kozero::kernels
