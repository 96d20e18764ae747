// SPDX-FileCopyrightText: The KoZeRO authors
// SPDX-License-Identifier: Apache-2.0
// gelu.hpp: the Gaussian error linear unit in its tanh form, with its gradient.
//   y = x/2 (1 + tanh(u)) = x s,  u = sqrt(2/pi) (x + 0.044715 x^3),  s = 1 / (1 + exp(-2u))
//   dx = dy (s + x s (1 - s) 2u')                          x, y, dx, dy of one extent
// Both outputs are overwritten; dx may be dy. Returns without fencing.      Hendrycks, Gimpel 2016, arXiv:1606.08415.
#pragma once
#include <kozero/core/error.hpp>
#include <kozero/core/views.hpp>
#include <kozero/kernels/elements.hpp>
#include <kozero/kernels/inputs.hpp>
#include <kozero/kernels/vector_math.hpp>

namespace kozero::kernels {

inline constexpr float kGeluSlope = 2.0F * 0.797884560802865356F;  ///< 2 sqrt(2/pi)
inline constexpr float kGeluCubic = 0.044715F;

template <class Space, class T>
void gelu_forward(const Space& space, Vector<T> y, VectorIn<T> x) {
  require(y.extent(0) == x.extent(0), "gelu_forward: y and x differ in extent");
  const T* const in = x.data();
  T* const out = y.data();
  for_each_element(
      space, "kozero::gelu_forward", static_cast<std::int64_t>(x.extent(0)), KOKKOS_LAMBDA(std::int64_t i) {
        const float v = static_cast<float>(in[i]);
        const float u2 = kGeluSlope * (v + kGeluCubic * (v * v * v));
        out[i] = static_cast<T>(v * fast_sigmoid(u2));
      });
}

template <class Space, class T>
void gelu_backward(const Space& space, Vector<T> dx, VectorIn<T> dy, VectorIn<T> x) {
  require(dx.extent(0) == x.extent(0) && dy.extent(0) == x.extent(0), "gelu_backward: dx, dy and x differ in extent");
  const T* const in = x.data();
  const T* const upper = dy.data();
  T* const out = dx.data();
  for_each_element(
      space, "kozero::gelu_backward", static_cast<std::int64_t>(x.extent(0)), KOKKOS_LAMBDA(std::int64_t i) {
        const float v = static_cast<float>(in[i]);
        const float s = fast_sigmoid(kGeluSlope * (v + kGeluCubic * (v * v * v)));
        const float du2 = kGeluSlope * (1.0F + 3.0F * kGeluCubic * (v * v));
        out[i] = static_cast<T>(static_cast<float>(upper[i]) * (s + v * s * (1.0F - s) * du2));
      });
}

}  // namespace kozero::kernels
