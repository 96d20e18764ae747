// SPDX-FileCopyrightText: The KoZeRO authors
// SPDX-License-Identifier: Apache-2.0
// rmsnorm.hpp: row-wise root-mean-square normalisation with its gradient.
//   y = gamma * x * rstd,  rstd = 1 / sqrt(mean of x^2 + eps)      x, y (N, C)   gamma (C)   rstd (N)
//   dx += rstd * (g - xhat * mean of (g * xhat)),  g = gamma * dy,  xhat = x * rstd      means over the row
//   dgamma += sum over n of dy * xhat
// Backward adds into both: dx already holds the residual stream's gradient. The workspace has
// row_reduction_workspace(C) floats. Sums are in float. Runs on `space`; returns without fencing.      Zhang, Sennrich
// 2019, arXiv:1910.07467.
#pragma once
#include <kozero/kernels/inputs.hpp>
#include <kozero/kernels/row_blocks.hpp>

namespace kozero::kernels {

template <class Space, class T>
void rmsnorm_forward(const Space& space, Matrix<T> y, Vector<float> rstd, MatrixIn<T> x, VectorIn<T> gamma, float eps) {
  const auto columns = static_cast<std::int64_t>(x.extent(1));
  require(y.extent(0) == x.extent(0) && y.extent(1) == x.extent(1) && rstd.extent(0) == x.extent(0) &&
              gamma.extent(0) == x.extent(1),
          "rmsnorm_forward: the shapes do not fit x (N, C)");
  const float share = columns > 0 ? 1.0F / static_cast<float>(columns) : 0.0F;
  for_each_row(
      space, "kozero::rmsnorm_forward", static_cast<std::int64_t>(x.extent(0)),
      KOKKOS_LAMBDA(const RowTeam<Space>& team, std::int64_t n) {
        const T* const in = row_of(x, n);
        T* const out = row_of(y, n);
        const T* const weight = gamma.data();
        const float square = share * row_sum(team, columns, [&](std::int64_t c) {
                               return static_cast<float>(in[c]) * static_cast<float>(in[c]);
                             });
        const float r = columns > 0 ? 1.0F / Kokkos::sqrt(square + eps) : 0.0F;
        assign_row(team, out, columns,
                   [=](std::int64_t c) { return static_cast<float>(weight[c]) * (static_cast<float>(in[c]) * r); });
        Kokkos::single(Kokkos::PerThread(team), [&] { rstd(n) = r; });
      });
}

/// The input's share of the backward.
template <class Space, class T>
void rmsnorm_add_dx(const Space& space, Matrix<T> dx, MatrixIn<T> dy, MatrixIn<T> x, VectorIn<T> gamma,
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
        const auto g = [=](std::int64_t c) { return static_cast<float>(weight[c]) * static_cast<float>(upper[c]); };
        const auto xhat = [=](std::int64_t c) { return static_cast<float>(in[c]) * r; };
        const float mean_gx = share * row_sum(team, columns, [&](std::int64_t c) { return g(c) * xhat(c); });
        assign_row(team, out, columns,
                   [=](std::int64_t c) { return static_cast<float>(out[c]) + r * (g(c) - xhat(c) * mean_gx); });
      });
}

template <class Space, class T>
void rmsnorm_backward(const Space& space, Matrix<T> dx, Vector<float> dgamma, MatrixIn<T> dy, MatrixIn<T> x,
                      VectorIn<T> gamma, Vector<const float> rstd, Vector<float> workspace) {
  require(dx.extent(0) == x.extent(0) && dx.extent(1) == x.extent(1) && dy.extent(0) == x.extent(0) &&
              dy.extent(1) == x.extent(1) && gamma.extent(0) == x.extent(1) && dgamma.extent(0) == x.extent(1) &&
              rstd.extent(0) == x.extent(0),
          "rmsnorm_backward: the shapes do not fit x (N, C)");
  rmsnorm_add_dx(space, dx, dy, x, gamma, rstd);
  add_row_sums<1>(
      space, "kozero::rmsnorm_backward::dgamma", {dgamma}, static_cast<std::int64_t>(x.extent(0)),
      KOKKOS_LAMBDA(std::int64_t n, std::int64_t c) {
        const float xhat = static_cast<float>(row_of(x, n)[c]) * rstd(n);
        return RowTerms<1>{static_cast<float>(row_of(dy, n)[c]) * xhat};
      },
      workspace);
}

}  // namespace kozero::kernels
