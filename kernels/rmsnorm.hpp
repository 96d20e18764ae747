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
        const auto g_xhat = [=](float w, float d, float v) { return w * d * (v * r); };
        const float mean_gx = share * row_sum(team, columns, g_xhat, weight, upper, in);
        const auto added = [=](float before, float w, float d, float v) {
          return before + r * (w * d - v * r * mean_gx);
        };
        assign_row(team, out, columns, added, out, weight, upper, in);
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
      space, "kozero::rmsnorm_backward::dgamma", {dgamma}, rows_of(x, dy),
      KOKKOS_LAMBDA(std::int64_t n, float v, float upper) { return RowTerms<1>{upper * (v * rstd(n))}; }, workspace);
}

}  // namespace kozero::kernels
