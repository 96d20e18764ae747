// SPDX-FileCopyrightText: The KoZeRO authors
// SPDX-License-Identifier: Apache-2.0
// layernorm.hpp: row-wise layer normalization with its gradient.
//   y = gamma * xhat + beta,  xhat = (x - mean) * rstd      x, y (N, C)   gamma, beta (C)   mean, rstd (N)
//   dx += rstd * (g - mean of g - xhat * mean of (g * xhat)),  g = gamma * dy      means over the row
//   dgamma += sum over n of dy * xhat                       dbeta += sum over n of dy
// Backward adds into all three: dx already has the residual stream's gradient. The workspace has
// row_reduction_workspace(C) floats. Sums are in float. Runs on `space`; returns without fencing.
// With an empty beta nothing is added, and dbeta, empty too, is omitted.
// Ba, Kiros, Hinton 2016, arXiv:1607.06450.
#pragma once
#include "kernels/launch/inputs.hpp"
#include "kernels/launch/reduce.hpp"
#include "kernels/launch/row_blocks.hpp"
#include "kernels/ops/bias.hpp"

namespace kozero::kernels {

/// A row's mean and 1 / sqrt(variance + eps).
struct RowMoments {
  float mean, rstd;
};

/// Computes the moments of row n and stores them for the backward.
template <class Space, class T>
KOKKOS_INLINE_FUNCTION RowMoments row_moments(const RowTeam<Space>& team, const Vector<float>& mean,
                                              const Vector<float>& rstd, const MatrixIn<T>& x, std::int64_t n,
                                              float eps) {
  const auto columns = static_cast<std::int64_t>(x.extent(1));
  const float share = columns > 0 ? 1.0F / static_cast<float>(columns) : 0.0F;
  const T* const in = row_of(x, n);
  const float m = share * row_sum(
                              team, columns, [](float v) { return v; }, in);
  const auto square = [=](float v) { return (v - m) * (v - m); };
  const float variance = share * row_sum(team, columns, square, in);
  const float r = columns > 0 ? 1.0F / Kokkos::sqrt(variance + eps) : 0.0F;
  Kokkos::single(Kokkos::PerThread(team), [&] {
    mean(n) = m;
    rstd(n) = r;
  });
  return {m, r};
}

template <class Space, class T>
static void layernorm_forward(const Space& space, Matrix<T> y, Vector<float> mean, Vector<float> rstd, MatrixIn<T> x,
                              VectorIn<T> gamma, VectorIn<T> beta, float eps) {
  const auto rows = static_cast<std::int64_t>(x.extent(0));
  const auto columns = static_cast<std::int64_t>(x.extent(1));
  require(y.extent(0) == x.extent(0) && y.extent(1) == x.extent(1) && mean.extent(0) == x.extent(0) &&
              rstd.extent(0) == x.extent(0) && gamma.extent(0) == x.extent(1) &&
              (beta.extent(0) == 0 || beta.extent(0) == x.extent(1)),
          "layernorm_forward: the shapes do not fit x (N, C)");
  if (beta.extent(0) > 0) {
    for_each_row(
        space, "kozero::layernorm_forward", rows, KOKKOS_LAMBDA(const RowTeam<Space>& team, std::int64_t n) {
          const RowMoments of = row_moments<Space, T>(team, mean, rstd, x, n, eps);
          const auto normed = [=](float v, float weight, float shift) {
            return weight * ((v - of.mean) * of.rstd) + shift;
          };
          assign_row(team, row_of(y, n), columns, normed, row_of(x, n), gamma.data(), beta.data());
        });
    return;
  }
  for_each_row(
      space, "kozero::layernorm_forward", rows, KOKKOS_LAMBDA(const RowTeam<Space>& team, std::int64_t n) {
        const RowMoments of = row_moments<Space, T>(team, mean, rstd, x, n, eps);
        const auto normed = [=](float v, float weight) { return weight * ((v - of.mean) * of.rstd); };
        assign_row(team, row_of(y, n), columns, normed, row_of(x, n), gamma.data());
      });
}

/// The input's share of the backward.
template <class Space, class T>
static void layernorm_add_dx(const Space& space, Matrix<T> dx, MatrixIn<T> dy, MatrixIn<T> x, VectorIn<T> gamma,
                             Vector<const float> mean, Vector<const float> rstd) {
  const auto columns = static_cast<std::int64_t>(x.extent(1));
  const float share = columns > 0 ? 1.0F / static_cast<float>(columns) : 0.0F;
  for_each_row(
      space, "kozero::layernorm_backward::dx", static_cast<std::int64_t>(x.extent(0)),
      KOKKOS_LAMBDA(const RowTeam<Space>& team, std::int64_t n) {
        const T* const in = row_of(x, n);
        const T* const upper = row_of(dy, n);
        T* const out = row_of(dx, n);
        const T* const weight = gamma.data();
        const float m = mean(n);
        const float r = rstd(n);
        const auto g_and_g_xhat = [=](float w, float d, float v) { return TwoValues{w * d, w * d * ((v - m) * r)}; };
        const TwoValues sums = row_sums(team, columns, g_and_g_xhat, weight, upper, in);
        const float mean_g = share * sums.first;
        const float mean_gx = share * sums.second;
        const auto added = [=](float before, float w, float d, float v) {
          return before + r * ((w * d - mean_g) - (v - m) * r * mean_gx);
        };
        assign_row(team, out, columns, added, out, weight, upper, in);
      });
}

template <class Space, class T>
static void layernorm_backward(const Space& space, Matrix<T> dx, Vector<float> dgamma, Vector<float> dbeta,
                               MatrixIn<T> dy, MatrixIn<T> x, VectorIn<T> gamma, Vector<const float> mean,
                               Vector<const float> rstd, Vector<float> workspace) {
  require(dx.extent(0) == x.extent(0) && dx.extent(1) == x.extent(1) && dy.extent(0) == x.extent(0) &&
              dy.extent(1) == x.extent(1) && gamma.extent(0) == x.extent(1) && dgamma.extent(0) == x.extent(1) &&
              (dbeta.extent(0) == 0 || dbeta.extent(0) == x.extent(1)) && mean.extent(0) == x.extent(0) &&
              rstd.extent(0) == x.extent(0),
          "layernorm_backward: the shapes do not fit x (N, C)");
  layernorm_add_dx(space, dx, dy, x, gamma, mean, rstd);
  if (dbeta.extent(0) > 0) {
    add_row_sums<2>(
        space, "kozero::layernorm_backward::dgamma_dbeta", {dgamma, dbeta}, rows_of(x, dy),
        KOKKOS_LAMBDA(std::int64_t n, float v, float upper) {
          return RowTerms<2>{upper * ((v - mean(n)) * rstd(n)), upper};
        },
        workspace);
    return;
  }
  add_row_sums<1>(
      space, "kozero::layernorm_backward::dgamma", {dgamma}, rows_of(x, dy),
      KOKKOS_LAMBDA(std::int64_t n, float v, float upper) { return RowTerms<1>{upper * ((v - mean(n)) * rstd(n))}; },
      workspace);
}

}  // namespace kozero::kernels
