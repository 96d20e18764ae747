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
  T* const out = x.data();
  for_each_element(
      space, "kozero::fill", static_cast<std::int64_t>(x.extent(0)), KOKKOS_LAMBDA(std::int64_t i) { out[i] = value; });
}

template <class Space, class T>
void scale(const Space& space, Vector<T> x, float factor) {
  const T* const in = x.data();
  assign_elements(
      space, "kozero::scale", x, KOKKOS_LAMBDA(std::int64_t i) { return factor * static_cast<float>(in[i]); });
}

template <class Space>
void add_into(const Space& space, Vector<float> y, Vector<const float> x) {
  require(y.extent(0) == x.extent(0), "add_into: y and x differ in extent");
  const float* const in = x.data();
  float* const out = y.data();
  for_each_element(
      space, "kozero::add_into", static_cast<std::int64_t>(y.extent(0)),
      KOKKOS_LAMBDA(std::int64_t i) { out[i] += in[i]; });
}

}  // namespace kozero::kernels
