// SPDX-FileCopyrightText: The KoZeRO authors
// SPDX-License-Identifier: Apache-2.0
// rmsnorm.hpp: root-mean-square normalization of rows, and of every query and key head, with gradients.
//   y = gamma * x * rstd,  rstd = 1 / sqrt(mean of x^2 + eps)
//   x, y (N, C), gamma (C); of heads: means over the D channels of a head, gamma (D)
//   dx = rstd * (g - xhat * mean of (g * xhat)),  g = gamma * dy,  xhat = x * rstd
//   dgamma += sum over n of dy * xhat
// The backward of rows adds into dx, which already has the residual stream's gradient, and into dgamma. The workspace
// has row_reduction_workspace(C) floats, or (D) for heads. Sums are in float, without atomics. Runs on `space` and
// returns without fencing.      Zhang, Sennrich 2019, arXiv:1910.07467; of heads: Dehghani et al. 2023,
// arXiv:2302.05442.
#pragma once
#include "kernels/launch/inputs.hpp"
#include "kernels/launch/row_blocks.hpp"

namespace kozero::kernels {

template <class Space, class T>
static void rmsnorm_forward(const Space& space, Matrix<T> y, Vector<float> rstd, MatrixIn<T> x, VectorIn<T> gamma,
                            float eps) {
  const auto columns = static_cast<std::int64_t>(x.extent(1));
  require(y.extent(0) == x.extent(0) && y.extent(1) == x.extent(1) && rstd.extent(0) == x.extent(0) &&
              gamma.extent(0) == x.extent(1),
          "rmsnorm_forward: the shapes do not fit x (N, C)");
  const float share = columns > 0 ? 1.0F / static_cast<float>(columns) : 0.0F;
  for_each_row(
      space, "kozero::rmsnorm_forward", static_cast<std::int64_t>(x.extent(0)),
      KOKKOS_LAMBDA(const RowTeam<Space>& team, std::int64_t n) {
        const T* const in = row_of(x, n);
        const float square = share * row_sum(
                                         team, columns, [](float v) { return v * v; }, in);
        const float r = columns > 0 ? 1.0F / Kokkos::sqrt(square + eps) : 0.0F;
        const auto normed = [=](float v, float weight) { return weight * (v * r); };
        assign_row(team, row_of(y, n), columns, normed, in, gamma.data());
        Kokkos::single(Kokkos::PerThread(team), [&] { rstd(n) = r; });
      });
}

/// The input's share of the backward.
template <class Space, class T>
static void rmsnorm_add_dx(const Space& space, Matrix<T> dx, MatrixIn<T> dy, MatrixIn<T> x, VectorIn<T> gamma,
                           Vector<const float> rstd) {
  const auto columns = static_cast<std::int64_t>(x.extent(1));
  const float share = columns > 0 ? 1.0F / static_cast<float>(columns) : 0.0F;
  for_each_row(
      space, "kozero::rmsnorm_backward::dx", static_cast<std::int64_t>(x.extent(0)),
      KOKKOS_LAMBDA(const RowTeam<Space>& team, std::int64_t n) {
        const T* const in = row_of(x, n);
        const T* const upper = row_of(dy, n);
        T* const out = row_of(dx, n);
        const T* const weight = gamma.data();
        const float r = rstd(n);
        const auto g_xhat = [=](float w, float d, float v) { return w * d * (v * r); };
        const float mean_gx = share * row_sum(team, columns, g_xhat, weight, upper, in);
        const auto added = [=](float before, float w, float d, float v) {
          return before + r * (w * d - v * r * mean_gx);
        };
        assign_row(team, out, columns, added, out, weight, upper, in);
      });
}

template <class Space, class T>
static void rmsnorm_backward(const Space& space, Matrix<T> dx, Vector<float> dgamma, MatrixIn<T> dy, MatrixIn<T> x,
                             VectorIn<T> gamma, Vector<const float> rstd, Vector<float> workspace) {
  require(dx.extent(0) == x.extent(0) && dx.extent(1) == x.extent(1) && dy.extent(0) == x.extent(0) &&
              dy.extent(1) == x.extent(1) && gamma.extent(0) == x.extent(1) && dgamma.extent(0) == x.extent(1) &&
              rstd.extent(0) == x.extent(0),
          "rmsnorm_backward: the shapes do not fit x (N, C)");
  rmsnorm_add_dx(space, dx, dy, x, gamma, rstd);
  add_row_sums<1>(
      space, "kozero::rmsnorm_backward::dgamma", {dgamma}, rows_of(x, dy),
      KOKKOS_LAMBDA(std::int64_t n, float v, float upper) { return RowTerms<1>{upper * (v * rstd(n))}; }, workspace);
}

/// RMSNorm of every query and key head over its own D channels:
///   x, y (N, (H + 2 KV) D)   rstd (N, H + KV)   gamma (D), one for the queries and one for the keys
///   a row of x = H query heads | KV key heads | KV value heads      dgamma += sum over rows and heads of dy * xhat
/// Forward copies the value heads; backward leaves them unchanged and overwrites dy with dx.
struct QkHeads {
  std::int64_t query = 0;  ///< H
  std::int64_t key = 0;    ///< KV, and as many value heads
  std::int64_t head_dim = 0;

  [[nodiscard]] KOKKOS_FUNCTION std::int64_t normed() const { return query + key; }
  [[nodiscard]] KOKKOS_FUNCTION std::int64_t columns() const { return (query + 2 * key) * head_dim; }
};

/// The queries' vector (D) and the keys'.
template <class T>
struct QkVectors {
  Vector<T> query;
  Vector<T> key;
};
template <class T>
using QkVectorsIn = QkVectors<const std::type_identity_t<T>>;

/// Throws if an array does not have the heads' extents.
template <class Qkv, class Rstd, class Gamma>
void require_qk_norm(const std::string& label, const QkHeads& heads, const Qkv& qkv, const Rstd& rstd,
                     const Gamma& gamma) {
  const auto has = [](std::size_t extent, std::int64_t wanted) { return static_cast<std::int64_t>(extent) == wanted; };
  require(has(qkv.extent(1), heads.columns()) && has(rstd.extent(1), heads.normed()) &&
              rstd.extent(0) == qkv.extent(0) && has(gamma.query.extent(0), heads.head_dim) &&
              has(gamma.key.extent(0), heads.head_dim),
          label + ": the shapes do not fit qkv (N, (H + 2 KV) D)");
}

template <class Space, class T>
static void qk_norm_forward(const Space& space, Matrix<T> y, Matrix<float> rstd, MatrixIn<T> x, QkVectorsIn<T> gamma,
                            const QkHeads& heads, float eps) {
  require_qk_norm("qk_norm_forward", heads, x, rstd, gamma);
  require(y.extent(0) == x.extent(0) && y.extent(1) == x.extent(1), "qk_norm_forward: y and x differ in shape");
  const std::int64_t columns = heads.head_dim;
  const float share = columns > 0 ? 1.0F / static_cast<float>(columns) : 0.0F;
  for_each_row(
      space, "kozero::qk_norm_forward", static_cast<std::int64_t>(x.extent(0)),
      KOKKOS_LAMBDA(const RowTeam<Space>& team, std::int64_t n) {
        for (std::int64_t head = 0; head < heads.normed(); ++head) {
          const T* const in = row_of(x, n) + head * columns;
          T* const out = row_of(y, n) + head * columns;
          const T* const weight = head < heads.query ? gamma.query.data() : gamma.key.data();
          const float square = share * row_sum(
                                           team, columns, [](float v) { return v * v; }, in);
          const float r = 1.0F / Kokkos::sqrt(square + eps);
          assign_row(
              team, out, columns, [=](float v, float w) { return w * (v * r); }, in, weight);
          Kokkos::single(Kokkos::PerThread(team), [&] { rstd(n, head) = r; });
        }
        const T* const values = row_of(x, n) + heads.normed() * columns;
        T* const copied = row_of(y, n) + heads.normed() * columns;
        copy_row(team, copied, values, heads.key * columns);
      });
}

/// The input's share of the backward.
template <class Space, class T>
static void qk_norm_dx(const Space& space, Matrix<T> dqkv, MatrixIn<T> x, Matrix<const float> rstd,
                       QkVectorsIn<T> gamma, const QkHeads& heads) {
  const std::int64_t columns = heads.head_dim;
  const float share = columns > 0 ? 1.0F / static_cast<float>(columns) : 0.0F;
  for_each_row(
      space, "kozero::qk_norm_backward::dx", static_cast<std::int64_t>(x.extent(0)),
      KOKKOS_LAMBDA(const RowTeam<Space>& team, std::int64_t n) {
        for (std::int64_t head = 0; head < heads.normed(); ++head) {
          const T* const in = row_of(x, n) + head * columns;
          T* const d = row_of(dqkv, n) + head * columns;
          const T* const weight = head < heads.query ? gamma.query.data() : gamma.key.data();
          const float r = rstd(n, head);
          const auto g_xhat = [=](float w, float upper, float v) { return w * upper * (v * r); };
          const float mean_gx = share * row_sum(team, columns, g_xhat, weight, d, in);
          const auto slope = [=](float w, float upper, float v) { return r * (w * upper - v * r * mean_gx); };
          assign_row(team, d, columns, slope, weight, d, in);
        }
      });
}

/// The gradient of the gain from `count` heads, starting at `first`.
template <class Space, class T>
static void qk_norm_dgamma(const Space& space, Vector<float> dgamma, Matrix<T> dqkv, MatrixIn<T> x,
                           Matrix<const float> rstd, std::int64_t first, std::int64_t count, Vector<float> workspace) {
  const auto columns = static_cast<std::int64_t>(dgamma.extent(0));
  using Heads = PartsOfRows<T>;
  const auto heads_of = [=](const T* all) {
    return Heads{all + first * columns, static_cast<std::int64_t>(x.extent(1)), count, columns};
  };
  const Rows<Heads, 2> heads{{heads_of(x.data()), heads_of(dqkv.data())},
                             static_cast<std::int64_t>(x.extent(0)) * count};
  add_row_sums<1>(
      space, "kozero::qk_norm_backward::dgamma", {dgamma}, heads,
      KOKKOS_LAMBDA(std::int64_t i, float v, float upper) {
        const std::int64_t n = heads.arrays[0].row(i);
        return RowTerms<1>{upper * (v * rstd(n, first + i - n * count))};
      },
      workspace);
}

template <class Space, class T>
void qk_norm_backward(const Space& space, Matrix<T> dqkv, const QkVectors<float>& dgamma, MatrixIn<T> x,
                      Matrix<const float> rstd, QkVectorsIn<T> gamma, const QkHeads& heads, Vector<float> workspace) {
  require_qk_norm("qk_norm_backward", heads, x, rstd, gamma);
  require_qk_norm("qk_norm_backward", heads, dqkv, rstd, dgamma);
  qk_norm_dgamma(space, dgamma.query, dqkv, x, rstd, 0, heads.query, workspace);
  qk_norm_dgamma(space, dgamma.key, dqkv, x, rstd, heads.query, heads.key, workspace);
  qk_norm_dx(space, dqkv, x, rstd, gamma, heads);
}

}  // namespace kozero::kernels
