// SPDX-FileCopyrightText: The KoZeRO authors
// SPDX-License-Identifier: Apache-2.0
// gelu.hpp: the Gaussian error linear unit in its tanh form, with its gradient.
//   y = x/2 (1 + tanh(u)) = x s,  u = sqrt(2/pi) (x + 0.044715 x^3),  s = 1 / (1 + exp(-2u))
//   dx = dy (s + x s (1 - s) 2u')                          x, y, dx, dy of one extent
// Both outputs are overwritten; dx may be dy. Returns without fencing.      Hendrycks, Gimpel 2016, arXiv:1606.08415.
#pragma once
#include <kozero/core/error.hpp>
#include <kozero/core/views.hpp>
#include "kernels/launch/for_each.hpp"
#include "kernels/launch/inputs.hpp"
#include "kernels/launch/vector_math.hpp"
#include "kernels/ops/gelu_constants.hpp"

namespace kozero::kernels {

/// y of x = v.
KOKKOS_INLINE_FUNCTION float gelu(float v) {
  return v / (1.0F + fast_exp2(v * multiply_add(kGeluCubic, v * v, kGeluLinear)));
}

/// dy / dx at x = v.
KOKKOS_INLINE_FUNCTION float gelu_slope(float v) {
  const float square = v * v;
  const float s = 1.0F / (1.0F + fast_exp2(v * multiply_add(kGeluCubic, square, kGeluLinear)));
  return multiply_add(multiply_add(-s, s, s), v * multiply_add(kGeluCurve, square, kGeluSlope), s);
}

template <class Space, class T>
static void gelu_forward(const Space& space, Vector<T> y, VectorIn<T> x) {
  require(y.extent(0) == x.extent(0), "gelu_forward: y and x differ in extent");
  assign_elements(
      space, "kozero::gelu_forward", y, inputs_of(x), KOKKOS_LAMBDA(float v) { return gelu(v); });
}

template <class Space, class T>
static void gelu_backward(const Space& space, Vector<T> dx, VectorIn<T> dy, VectorIn<T> x) {
  require(dx.extent(0) == x.extent(0) && dy.extent(0) == x.extent(0), "gelu_backward: dx, dy and x differ in extent");
  assign_elements(
      space, "kozero::gelu_backward", dx, inputs_of(dy, x),
      KOKKOS_LAMBDA(float upper, float v) { return upper * gelu_slope(v); });
}

}  // namespace kozero::kernels
