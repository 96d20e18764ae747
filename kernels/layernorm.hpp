// SPDX-FileCopyrightText: The KoZeRO authors
// SPDX-License-Identifier: Apache-2.0
// layernorm.hpp: row-wise layer normalisation with its gradient.
//   y = gamma * xhat + beta,  xhat = (x - mean) * rstd      x, y (N, C)   gamma, beta (C)   mean, rstd (N)
//   dx += rstd * (g - mean of g - xhat * mean of (g * xhat)),  g = gamma * dy      means over the row
//   dgamma += sum over n of dy * xhat                       dbeta += sum over n of dy
// Backward adds into all three: dx already holds the residual stream's gradient. The workspace has
// row_reduction_workspace(C) floats. Sums are in float. Runs on `space`; returns without fencing.
// Ba, Kiros, Hinton 2016, arXiv:1607.06450.
#pragma once
#include <kozero/kernels/bias.hpp>
#include <kozero/kernels/inputs.hpp>
#include <kozero/kernels/row_blocks.hpp>

namespace kozero::kernels {

template <class Space, class T>
void layernorm_forward(const Space& space, Matrix<T> y, Vector<float> mean, Vector<float> rstd, MatrixIn<T> x,
                       VectorIn<T> gamma, VectorIn<T> beta, float eps) {
  const auto rows = static_cast<std::int64_t>(x.extent(0));
  const auto columns = static_cast<std::int64_t>(x.extent(1));
  require(y.extent(0) == x.extent(0) && y.extent(1) == x.extent(1) && mean.extent(0) == x.extent(0) &&
              rstd.extent(0) == x.extent(0) && gamma.extent(0) == x.extent(1) && beta.extent(0) == x.extent(1),
          "layernorm_forward: the shapes do not fit x (N, C)");
  const float share = columns > 0 ? 1.0F / static_cast<float>(columns) : 0.0F;
  for_each_row(
      space, "kozero::layernorm_forward", rows, KOKKOS_LAMBDA(const RowTeam<Space>& team, std::int64_t n) {
        const T* const in = row_of(x, n);
        T* const out = row_of(y, n);
        const T* const weight = gamma.data();
        const T* const shift = beta.data();
        const float m = share * row_sum(team, columns, [&](std::int64_t c) { return static_cast<float>(in[c]); });
        const float variance = share * row_sum(team, columns, [&](std::int64_t c) {
                                 const float d = static_cast<float>(in[c]) - m;
                                 return d * d;
                               });
        const float r = columns > 0 ? 1.0F / Kokkos::sqrt(variance + eps) : 0.0F;
        assign_row(team, out, columns, [=](std::int64_t c) {
          const float xhat = (static_cast<float>(in[c]) - m) * r;
          return static_cast<float>(weight[c]) * xhat + static_cast<float>(shift[c]);
        });
        Kokkos::single(Kokkos::PerThread(team), [&] {
          mean(n) = m;
          rstd(n) = r;
        });
      });
}

/// The input's share of the backward.
template <class Space, class T>
void layernorm_add_dx(const Space& space, Matrix<T> dx, MatrixIn<T> dy, MatrixIn<T> x, VectorIn<T> gamma,
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
        const auto g = [=](std::int64_t c) { return static_cast<float>(weight[c]) * static_cast<float>(upper[c]); };
        const auto xhat = [=](std::int64_t c) { return (static_cast<float>(in[c]) - m) * r; };
        const float mean_g = share * row_sum(team, columns, g);
        const float mean_gx = share * row_sum(team, columns, [&](std::int64_t c) { return g(c) * xhat(c); });
        assign_row(team, out, columns, [=](std::int64_t c) {
          const float slope = (g(c) - mean_g) - xhat(c) * mean_gx;
          return static_cast<float>(out[c]) + r * slope;
        });
      });
}

template <class Space, class T>
void layernorm_backward(const Space& space, Matrix<T> dx, Vector<float> dgamma, Vector<float> dbeta, MatrixIn<T> dy,
                        MatrixIn<T> x, VectorIn<T> gamma, Vector<const float> mean, Vector<const float> rstd,
                        Vector<float> workspace) {
  require(dx.extent(0) == x.extent(0) && dx.extent(1) == x.extent(1) && dy.extent(0) == x.extent(0) &&
              dy.extent(1) == x.extent(1) && gamma.extent(0) == x.extent(1) && dgamma.extent(0) == x.extent(1) &&
              mean.extent(0) == x.extent(0) && rstd.extent(0) == x.extent(0),
          "layernorm_backward: the shapes do not fit x (N, C)");
  layernorm_add_dx(space, dx, dy, x, gamma, mean, rstd);
  add_row_sums<2>(
      space, "kozero::layernorm_backward::dgamma_dbeta", {dgamma, dbeta}, static_cast<std::int64_t>(x.extent(0)),
      KOKKOS_LAMBDA(std::int64_t n, std::int64_t c) {
        const float xhat = (static_cast<float>(row_of(x, n)[c]) - mean(n)) * rstd(n);
        const float upper = static_cast<float>(row_of(dy, n)[c]);
        return RowTerms<2>{upper * xhat, upper};
      },
      workspace);
}

}  // namespace kozero::kernels
