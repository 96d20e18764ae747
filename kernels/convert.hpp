// SPDX-FileCopyrightText: The KoZeRO authors
// SPDX-License-Identifier: Apache-2.0
// convert.hpp: a vector in another storage type: weights rounded from their master.
//   y = T(x)                                                x, y of one extent
// To 16 bits it rounds to nearest, ties to even. Elementwise: the bits do not depend on how an array is cut. Runs on
// `space`; returns without fencing.
#pragma once
#include <kozero/core/error.hpp>
#include <kozero/core/views.hpp>
#include <kozero/kernels/elements.hpp>

namespace kozero::kernels {

template <class Space, class T, class From>
void convert(const Space& space, Vector<T> y, Vector<From> x) {
  require(y.extent(0) == x.extent(0), "convert: x and y differ in extent");
  assign_elements(
      space, "kozero::convert", y, inputs_of(Vector<const From>(x)), KOKKOS_LAMBDA(float value) { return value; });
}

}  // namespace kozero::kernels
