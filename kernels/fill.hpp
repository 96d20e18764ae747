// SPDX-FileCopyrightText: The KoZeRO authors
// SPDX-License-Identifier: Apache-2.0
// fill.hpp: the plain vector operations: set, scale, add.
//   fill: x = value      scale: x *= factor      add_into: y += x
// Elementwise, any extent. Runs on `space`; returns without fencing.
#pragma once
#include <type_traits>

#include <kozero/core/error.hpp>
#include <kozero/core/views.hpp>
#include <kozero/kernels/elements.hpp>

namespace kozero::kernels {

template <class Space, class T>
void fill(const Space& space, Vector<T> x, std::type_identity_t<T> value) {
  const auto number = static_cast<float>(value);
  assign_elements(
      space, "kozero::fill", x, InputArrays<T, 0>(), KOKKOS_LAMBDA() { return number; });
}

template <class Space, class T>
void scale(const Space& space, Vector<T> x, float factor) {
  assign_elements(
      space, "kozero::scale", x, inputs_of(Vector<const T>(x)), KOKKOS_LAMBDA(float v) { return factor * v; });
}

template <class Space>
void add_into(const Space& space, Vector<float> y, Vector<const float> x) {
  require(y.extent(0) == x.extent(0), "add_into: y and x differ in extent");
  assign_elements(
      space, "kozero::add_into", y, inputs_of(Vector<const float>(y), x),
      KOKKOS_LAMBDA(float sum, float addend) { return sum + addend; });
}

}  // namespace kozero::kernels
