// SPDX-FileCopyrightText: The KoZeRO authors
// SPDX-License-Identifier: Apache-2.0
// attention_rows.hpp: attention with one worker, a GPU's warp or a host thread, for each row; it runs on every space.
//   forward    the worker of query i keeps p(i, 0..i) in scratch memory, then forms y(i,:)
//   backward   delta(i) = dy(i,:) . y(i,:)      ds(i,j) = p(i,j) (m(i,j) dy(i,:) . v(j,:) - delta(i)) / sqrt(D)
//              the worker of query i forms dq(i,:) = sum_j ds(i,j) k(j,:)
//              the worker of key j forms dk(j,:) = sum_i ds(i,j) q(i,:) and dv(j,:) = sum_i m(i,j) p(i,j) dy(i,:)
// Every output element has one worker, so there are no atomics; probabilities are computed again for each use.
// The contract is attention.hpp's; the workspace holds delta, B H T floats. Runs on `space`; returns without fencing.
#pragma once
#include <cstdint>
#include <Kokkos_Core.hpp>
#include <string>

#include <kozero/core/error.hpp>
#include <kozero/kernels/attention.hpp>
#include <kozero/kernels/row_max.hpp>
#include <kozero/kernels/rows.hpp>
#include <kozero/kernels/vector_math.hpp>

namespace kozero::kernels {

/// Calls body(team, n, memory) for each row, with `scratch` floats of memory that the worker of the row has to itself.
template <class Space, class Body>
void for_each_row_with_scratch(const Space& space, const std::string& label, std::int64_t rows, std::int64_t scratch,
                               Body body) {
  if (rows == 0) return;
  constexpr std::int64_t kFastScratch = 8192;  // floats of a GPU's shared memory that a worker may take
  const int level = scratch <= kFastScratch ? 0 : 1;
  constexpr int kVector = runs_on_host<Space> ? 1 : kLanes;
  auto policy = Kokkos::TeamPolicy<Space>(space, static_cast<int>(rows), 1, kVector);
  policy.set_scratch_size(level,
                          Kokkos::PerThread(static_cast<int>(scratch * static_cast<std::int64_t>(sizeof(float)))));
  Kokkos::parallel_for(
      label, policy, KOKKOS_LAMBDA(const RowTeam<Space>& team) {
        auto* const memory = static_cast<float*>(
            team.thread_scratch(level).get_shmem(scratch * static_cast<std::int64_t>(sizeof(float))));
        body(team, static_cast<std::int64_t>(team.league_rank()), memory);
      });
}

/// a . b over D elements, by one lane.
template <class A, class B>
KOKKOS_INLINE_FUNCTION float dot(std::int64_t extent, const A* a, const B* b) {
  float sum = 0.0F;
  for (std::int64_t d = 0; d < extent; ++d) sum += static_cast<float>(a[d]) * static_cast<float>(b[d]);
  return sum;
}

/// Which query row a worker has: row n of (B, H, T).
struct QueryRow {
  std::int64_t batch, head, kv, position;

  KOKKOS_FUNCTION QueryRow(const AttentionShape& shape, std::int64_t n)
      : batch(n / shape.positions / shape.heads),
        head(n / shape.positions % shape.heads),
        kv(head / shape.group()),
        position(n % shape.positions) {}
};

template <class Space, class T>
void attention_rows_forward(const Space& space, Matrix<T> y, Matrix<float> logsumexp, MatrixIn<T> qkv,
                            const AttentionShape& shape) {
  require_attention(shape, y, logsumexp, qkv);
  for_each_row_with_scratch(
      space, "kozero::attention_forward", shape.batch * shape.heads * shape.positions, shape.positions,
      KOKKOS_LAMBDA(const RowTeam<Space>& team, std::int64_t n, float* p) {
        const QueryRow row(shape, n);
        const std::int64_t stride = shape.qkv_columns();
        const std::int64_t keys = row.position + 1;
        const float scale = shape.scale();
        const T* const q = qkv.data() + shape.query(row.batch, row.head) + row.position * stride;
        const T* const k = qkv.data() + shape.key_of(row.batch, row.kv);
        const T* const v = qkv.data() + shape.value_of(row.batch, row.kv);
        for_each_column(team, keys, [&](std::int64_t j) { p[j] = scale * dot(shape.head_dim, q, k + j * stride); });
        const float largest = row_max(team, keys, [&](std::int64_t j) { return p[j]; });
        const float sum = row_sum(team, keys, [&](std::int64_t j) { return fast_exp(p[j] - largest); });
        const float lse = largest + Kokkos::log(sum);
        for_each_column(team, keys, [&](std::int64_t j) {
          p[j] = fast_exp(p[j] - lse) * shape.kept(row.batch, row.head, row.position, j);
        });
        T* const out = y.data() + shape.output(row.batch, row.head) + row.position * shape.y_columns();
        for_each_column(team, shape.head_dim, [&](std::int64_t d) {
          float total = 0.0F;
          for (std::int64_t j = 0; j < keys; ++j) total += p[j] * static_cast<float>(v[j * stride + d]);
          out[d] = static_cast<T>(total);
        });
        Kokkos::single(Kokkos::PerThread(team), [&]() { logsumexp.data()[n] = lse; });
      });
}

/// What the two halves of backward read.
template <class T>
struct AttentionGradient {
  AttentionShape shape;
  const T* qkv;
  const T* dy;
  const float* logsumexp;
  const float* delta;

  /// m(i,j) p(i,j) and ds(i,j) of one query row and one key.
  KOKKOS_FUNCTION void probability(const QueryRow& row, std::int64_t j, float& kept_p, float& ds) const {
    const std::int64_t stride = shape.qkv_columns();
    const std::int64_t n = (row.batch * shape.heads + row.head) * shape.positions + row.position;
    const T* const q = qkv + shape.query(row.batch, row.head) + row.position * stride;
    const T* const k = qkv + shape.key_of(row.batch, row.kv) + j * stride;
    const T* const v = qkv + shape.value_of(row.batch, row.kv) + j * stride;
    const T* const dy_row = dy + shape.output(row.batch, row.head) + row.position * shape.y_columns();
    const float kept = shape.kept(row.batch, row.head, row.position, j);
    const float p = fast_exp(shape.scale() * dot(shape.head_dim, q, k) - logsumexp[n]);
    kept_p = kept * p;
    ds = shape.scale() * p * (kept * dot(shape.head_dim, dy_row, v) - delta[n]);
  }
};

template <class Space, class T>
void attention_rows_delta(const Space& space, Vector<float> delta, MatrixIn<T> dy, MatrixIn<T> y,
                          const AttentionShape& shape) {
  for_each_row(
      space, "kozero::attention_backward::delta", shape.batch * shape.heads * shape.positions,
      KOKKOS_LAMBDA(const RowTeam<Space>& team, std::int64_t n) {
        const QueryRow row(shape, n);
        const std::int64_t at = shape.output(row.batch, row.head) + row.position * shape.y_columns();
        const T* const dy_row = dy.data() + at;
        const T* const y_row = y.data() + at;
        const float sum = row_sum(team, shape.head_dim, [&](std::int64_t d) {
          return static_cast<float>(dy_row[d]) * static_cast<float>(y_row[d]);
        });
        Kokkos::single(Kokkos::PerThread(team), [&]() { delta(n) = sum; });
      });
}

template <class Space, class T>
void attention_rows_query_gradient(const Space& space, Matrix<T> dqkv, const AttentionGradient<T>& gradient) {
  const AttentionShape shape = gradient.shape;
  for_each_row_with_scratch(
      space, "kozero::attention_backward::query", shape.batch * shape.heads * shape.positions, shape.positions,
      KOKKOS_LAMBDA(const RowTeam<Space>& team, std::int64_t n, float* ds) {
        const QueryRow row(shape, n);
        const std::int64_t stride = shape.qkv_columns();
        const std::int64_t keys = row.position + 1;
        for_each_column(team, keys, [&](std::int64_t j) {
          float kept_p;
          gradient.probability(row, j, kept_p, ds[j]);
        });
        const T* const k = gradient.qkv + shape.key_of(row.batch, row.kv);
        T* const dq = dqkv.data() + shape.query(row.batch, row.head) + row.position * stride;
        for_each_column(team, shape.head_dim, [&](std::int64_t d) {
          float total = 0.0F;
          for (std::int64_t j = 0; j < keys; ++j) total += ds[j] * static_cast<float>(k[j * stride + d]);
          dq[d] = static_cast<T>(total);
        });
      });
}

template <class Space, class T>
void attention_rows_key_gradient(const Space& space, Matrix<T> dqkv, const AttentionGradient<T>& gradient) {
  const AttentionShape shape = gradient.shape;
  const std::int64_t queries =
      shape.group() * shape.positions;  // (query head of the group, position), those below j unused
  for_each_row_with_scratch(
      space, "kozero::attention_backward::key", shape.batch * shape.kv_heads * shape.positions, 2 * queries,
      KOKKOS_LAMBDA(const RowTeam<Space>& team, std::int64_t n, float* p) {
        const std::int64_t j = n % shape.positions;
        const std::int64_t kv = n / shape.positions % shape.kv_heads;
        const std::int64_t batch = n / shape.positions / shape.kv_heads;
        const std::int64_t first = (batch * shape.heads + kv * shape.group()) * shape.positions;
        float* const ds = p + queries;
        for_each_column(team, queries, [&](std::int64_t i) {
          const QueryRow row(shape, first + i);
          p[i] = 0.0F;
          ds[i] = 0.0F;
          if (row.position >= j) gradient.probability(row, j, p[i], ds[i]);
        });
        const std::int64_t stride = shape.qkv_columns();
        T* const dk = dqkv.data() + shape.key_of(batch, kv) + j * stride;
        T* const dv = dqkv.data() + shape.value_of(batch, kv) + j * stride;
        for_each_column(team, shape.head_dim, [&](std::int64_t d) {
          float key_total = 0.0F;
          float value_total = 0.0F;
          for (std::int64_t i = 0; i < queries; ++i) {
            const QueryRow row(shape, first + i);
            const std::int64_t q = shape.query(row.batch, row.head) + row.position * stride + d;
            const std::int64_t out = shape.output(row.batch, row.head) + row.position * shape.y_columns() + d;
            key_total += ds[i] * static_cast<float>(gradient.qkv[q]);
            value_total += p[i] * static_cast<float>(gradient.dy[out]);
          }
          dk[d] = static_cast<T>(key_total);
          dv[d] = static_cast<T>(value_total);
        });
      });
}

template <class Space, class T>
void attention_rows_backward(const Space& space, Matrix<T> dqkv, MatrixIn<T> dy, MatrixIn<T> y,
                             Matrix<const float> logsumexp, MatrixIn<T> qkv, const AttentionShape& shape,
                             Vector<float> workspace) {
  require_attention(shape, y, logsumexp, qkv);
  require_attention(shape, dy, logsumexp, dqkv);
  require(static_cast<std::int64_t>(workspace.extent(0)) >= shape.batch * shape.heads * shape.positions,
          "attention: the workspace is too small");
  attention_rows_delta<Space, T>(space, workspace, dy, y, shape);
  const AttentionGradient<T> gradient{shape, qkv.data(), dy.data(), logsumexp.data(), workspace.data()};
  attention_rows_query_gradient(space, dqkv, gradient);
  attention_rows_key_gradient(space, dqkv, gradient);
}

}  // namespace kozero::kernels
