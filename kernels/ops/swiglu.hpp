// SPDX-FileCopyrightText: The KoZeRO authors
// SPDX-License-Identifier: Apache-2.0
// swiglu.hpp: the gated linear unit with SiLU, with its gradient.
//   y = gate s(gate) up,  s(z) = 1 / (1 + exp(-z))         y (N, F)   gate_up (N, 2F): columns [0, F) gate, [F, 2F) up
//   dgate = dy up (s + gate s (1 - s))                     dup = dy gate s
// Outputs are overwritten; dgate_up may be gate_up. Returns without fencing.      Shazeer 2020, arXiv:2002.05202.
#pragma once
#include <kozero/core/error.hpp>
#include <kozero/core/views.hpp>
#include "kernels/launch/for_each.hpp"
#include "kernels/launch/inputs.hpp"
#include "kernels/launch/vector_math.hpp"

namespace kozero::kernels {

template <class Space, class T>
static void swiglu_forward(const Space& space, Matrix<T> y, MatrixIn<T> gate_up) {
  const auto width = static_cast<std::int64_t>(y.extent(1));
  require(gate_up.extent(0) == y.extent(0) && gate_up.extent(1) == 2 * y.extent(1),
          "swiglu_forward: gate_up (N, 2F) does not fit y (N, F)");
  for_each_row(
      space, "kozero::swiglu_forward", static_cast<std::int64_t>(y.extent(0)),
      KOKKOS_LAMBDA(const RowTeam<Space>& team, std::int64_t n) {
        const T* const gate = row_of(gate_up, n);
        const auto gated = [](float z, float up) { return z * fast_sigmoid(z) * up; };
        assign_row(team, row_of(y, n), width, gated, gate, gate + width);
      });
}

template <class Space, class T>
static void swiglu_backward(const Space& space, Matrix<T> dgate_up, MatrixIn<T> dy, MatrixIn<T> gate_up) {
  const auto width = static_cast<std::int64_t>(dy.extent(1));
  require(gate_up.extent(0) == dy.extent(0) && gate_up.extent(1) == 2 * dy.extent(1) &&
              dgate_up.extent(0) == dy.extent(0) && dgate_up.extent(1) == 2 * dy.extent(1),
          "swiglu_backward: gate_up, dgate_up (N, 2F) do not fit dy (N, F)");
  for_each_row(
      space, "kozero::swiglu_backward", static_cast<std::int64_t>(dy.extent(0)),
      KOKKOS_LAMBDA(const RowTeam<Space>& team, std::int64_t n) {
        const T* const gate = row_of(gate_up, n);
        T* const dgate = row_of(dgate_up, n);
        const auto slopes = [](float z, float up, float d) {
          const float s = fast_sigmoid(z);
          return TwoValues{d * up * (s + z * s * (1.0F - s)), d * (z * s)};
        };
        assign_rows(team, dgate, dgate + width, width, slopes, gate, gate + width, row_of(dy, n));
      });
}

}  // namespace kozero::kernels
