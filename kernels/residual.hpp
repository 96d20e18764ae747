// SPDX-FileCopyrightText: The KoZeRO authors
// SPDX-License-Identifier: Apache-2.0
// residual.hpp: the residual stream takes a branch's output.
//   x += y                                                 x, y of one extent
// Its backward is a copy of the gradient, so there is none here. Runs on `space`; returns without fencing.
#pragma once
#include <kozero/core/error.hpp>
#include <kozero/core/views.hpp>
#include <kozero/kernels/elements.hpp>
#include <kozero/kernels/inputs.hpp>

namespace kozero::kernels {

template <class Space, class T>
void residual_add(const Space& space, Vector<T> x, VectorIn<T> y) {
  require(x.extent(0) == y.extent(0), "residual_add: x and y differ in extent");
  assign_elements(
      space, "kozero::residual_add", x, inputs_of(VectorIn<T>(x), y),
      KOKKOS_LAMBDA(float stream, float branch) { return stream + branch; });
}

}  // namespace kozero::kernels
