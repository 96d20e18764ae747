// SPDX-FileCopyrightText: The KoZeRO authors
// SPDX-License-Identifier: Apache-2.0
// fill.hpp: elementwise operations on whole vectors: set, scale, add, convert, and add a branch to the residual stream.
//   fill: x = value     scale: x *= factor     add_into: y += x     convert: y = T(x)     residual_add: x += y
//   put_columns: y(n, first + c) = x(n, c)          x (N, C)   y (N, at least first + C)     add_columns: += instead
//   take_columns: y(n, c) = x(n, first + c)         y (N, C)   x (N, at least first + C)
// Elementwise: the bits do not depend on how an array is cut. Conversion to 16 bits rounds to nearest, ties to even.
// The backward of residual_add is a copy of the gradient. Runs on `space` and returns without fencing.
#pragma once
#include <type_traits>

#include <kozero/core/error.hpp>
#include <kozero/core/views.hpp>
#include "kernels/launch/for_each.hpp"
#include "kernels/launch/inputs.hpp"

namespace kozero::kernels {

template <class Space, class T>
static void fill(const Space& space, Vector<T> x, std::type_identity_t<T> value) {
  const auto number = static_cast<float>(value);
  assign_elements(
      space, "kozero::fill", x, InputArrays<T, 0>(), KOKKOS_LAMBDA() { return number; });
}

template <class Space, class T>
static void scale(const Space& space, Vector<T> x, float factor) {
  assign_elements(
      space, "kozero::scale", x, inputs_of(Vector<const T>(x)), KOKKOS_LAMBDA(float v) { return factor * v; });
}

template <class Space>
static void add_into(const Space& space, Vector<float> y, Vector<const float> x) {
  require(y.extent(0) == x.extent(0), "add_into: y and x differ in extent");
  assign_elements(
      space, "kozero::add_into", y, inputs_of(Vector<const float>(y), x),
      KOKKOS_LAMBDA(float sum, float addend) { return sum + addend; });
}

template <class Space, class T, class From>
static void convert(const Space& space, Vector<T> y, Vector<From> x) {
  require(y.extent(0) == x.extent(0), "convert: x and y differ in extent");
  assign_elements(
      space, "kozero::convert", y, inputs_of(Vector<const From>(x)), KOKKOS_LAMBDA(float value) { return value; });
}

template <class Space>
static void put_columns(const Space& space, Matrix<float> y, std::int64_t first, Matrix<const float> x) {
  const auto columns = static_cast<std::int64_t>(x.extent(1));
  require(y.extent(0) == x.extent(0) && first + columns <= static_cast<std::int64_t>(y.extent(1)),
          "put_columns: x does not fit into y");
  for_each_row(
      space, "kozero::put_columns", static_cast<std::int64_t>(x.extent(0)),
      KOKKOS_LAMBDA(const RowTeam<Space>& team, std::int64_t n) {
        copy_row(team, row_of(y, n) + first, row_of(x, n), columns);
      });
}

template <class Space, class T>
static void take_columns(const Space& space, Matrix<T> y, MatrixIn<T> x, std::int64_t first) {
  const auto columns = static_cast<std::int64_t>(y.extent(1));
  require(y.extent(0) == x.extent(0) && first + columns <= static_cast<std::int64_t>(x.extent(1)),
          "take_columns: y does not fit into x");
  for_each_row(
      space, "kozero::take_columns", static_cast<std::int64_t>(y.extent(0)),
      KOKKOS_LAMBDA(const RowTeam<Space>& team, std::int64_t n) {
        copy_row(team, row_of(y, n), row_of(x, n) + first, columns);
      });
}

template <class Space, class T>
static void add_columns(const Space& space, Matrix<T> y, std::int64_t first, MatrixIn<T> x) {
  const auto columns = static_cast<std::int64_t>(x.extent(1));
  require(y.extent(0) == x.extent(0) && first + columns <= static_cast<std::int64_t>(y.extent(1)),
          "add_columns: x does not fit into y");
  for_each_row(
      space, "kozero::add_columns", static_cast<std::int64_t>(x.extent(0)),
      KOKKOS_LAMBDA(const RowTeam<Space>& team, std::int64_t n) {
        T* const row = row_of(y, n) + first;
        assign_row(
            team, row, columns, [](float sum, float addend) { return sum + addend; }, row, row_of(x, n));
      });
}

template <class Space, class T>
static void residual_add(const Space& space, Vector<T> x, VectorIn<T> y) {
  require(x.extent(0) == y.extent(0), "residual_add: x and y differ in extent");
  assign_elements(
      space, "kozero::residual_add", x, inputs_of(VectorIn<T>(x), y),
      KOKKOS_LAMBDA(float stream, float branch) { return stream + branch; });
}

}  // namespace kozero::kernels
