// SPDX-FileCopyrightText: The KoZeRO authors
// SPDX-License-Identifier: Apache-2.0
// product_case.hpp: matrix products that a test compares with a plain loop in double: alone, added to c, with a bias.
#pragma once
#include <string>
#include <tuple>

#include "kernels/matmul/matmul.hpp"
#include "kernels/matmul/product_tuning.hpp"

#include "reference.hpp"

namespace kozero::kernels {

using reference::Filled;

/// The types of c, and of a, b and the bias.
template <class OutType, class InType>
struct Types {
  using Out = OutType;
  using In = InType;
};
using AllFloat = Types<float, float>;
using ProductTypes = std::tuple<AllFloat, Types<float, Bfloat16>, Types<Bfloat16, Bfloat16>, Types<float, Float16>,
                                Types<Float16, Float16>>;

template <class Held = AllFloat>
struct Case {
  using Out = typename Held::Out;
  using In = typename Held::In;
  std::int64_t m, n, k;
  Op op_a, op_b;

  [[nodiscard]] Filled<In> a() const { return Filled<In>(reference::numbers<In>(m * k, 1)); }
  [[nodiscard]] Filled<In> b() const { return Filled<In>(reference::numbers<In>(k * n, 2)); }
  [[nodiscard]] Filled<Out> c() const { return Filled<Out>(reference::numbers<Out>(m * n, 3)); }
  [[nodiscard]] Filled<In> bias() const { return Filled<In>(reference::numbers<In>(n, 4)); }

  [[nodiscard]] Matrix<const In> shaped_a(const Filled<In>& x) const {
    return op_a == Op::none ? x.input(m, k) : x.input(k, m);
  }
  [[nodiscard]] Matrix<const In> shaped_b(const Filled<In>& x) const {
    return op_b == Op::none ? x.input(k, n) : x.input(n, k);
  }
};

/// op(a) op(b) in double.
template <class Held>
std::vector<double> plain_product(const Case<Held>& of) {
  const std::vector<float> a = of.a().values();
  const std::vector<float> b = of.b().values();
  std::vector<double> c(static_cast<std::size_t>(of.m * of.n));
  for (std::int64_t i = 0; i < of.m; ++i) {
    for (std::int64_t j = 0; j < of.n; ++j) {
      double sum = 0.0;
      for (std::int64_t p = 0; p < of.k; ++p) {
        const float x = a[static_cast<std::size_t>(of.op_a == Op::none ? i * of.k + p : p * of.m + i)];
        const float y = b[static_cast<std::size_t>(of.op_b == Op::none ? p * of.n + j : j * of.k + p)];
        sum += static_cast<double>(x) * static_cast<double>(y);
      }
      c[static_cast<std::size_t>(i * of.n + j)] = sum;
    }
  }
  return c;
}

template <class Held>
std::vector<float> product_of(const Case<Held>& of, bool accumulate) {
  const auto a = of.a();
  const auto b = of.b();
  const auto c = of.c();
  matmul(Device(), c.matrix(of.m, of.n), of.op_a, of.shaped_a(a), of.op_b, of.shaped_b(b), accumulate);
  Device().fence();
  return c.values();
}

template <class Held>
std::vector<float> biased_product_of(const Case<Held>& of) {
  const auto a = of.a();
  const auto b = of.b();
  const auto c = of.c();
  const auto bias = of.bias();
  matmul(Device(), c.matrix(of.m, of.n), of.op_a, of.shaped_a(a), of.op_b, of.shaped_b(b), bias.input());
  Device().fence();
  return c.values();
}

/// Requires a product and `addends` further terms to be near `expected`. cuBLASLt rounds a product to Out before it
/// adds each of them (version 13.1 on an H200).
template <class Out>
void require_sum_near(const std::vector<float>& got, const std::vector<double>& expected, double tolerance,
                      int addends) {
  const double roundings = runs_on_host<Device> ? 1.0 : 1.0 + addends;
  reference::require_near_in<Out>(got, expected, tolerance, roundings);
}

/// Checks the plain, the accumulating and the biased product.
template <class Held>
void check(const Case<Held>& of) {
  using Out = typename Held::Out;
  CAPTURE(of.m, of.n, of.k, of.op_a == Op::transpose, of.op_b == Op::transpose);
  const double tolerance = 1e-6 + 2e-7 * static_cast<double>(of.k);
  const std::vector<double> expected = plain_product(of);
  reference::require_near_in<Out>(product_of(of, false), expected, tolerance);

  std::vector<double> added = expected;
  const std::vector<float> before = of.c().values();
  for (std::size_t i = 0; i < added.size(); ++i) added[i] += static_cast<double>(before[i]);
  require_sum_near<Out>(product_of(of, true), added, tolerance, 1);

  std::vector<double> biased = expected;
  const std::vector<float> bias = of.bias().values();
  for (std::size_t i = 0; i < biased.size(); ++i) biased[i] += static_cast<double>(bias[i % bias.size()]);
  require_sum_near<Out>(biased_product_of(of), biased, tolerance, 1);
}

template <class Held>
void check_all_operations(std::int64_t m, std::int64_t n, std::int64_t k) {
  for (const Op op_a : {Op::none, Op::transpose}) {
    for (const Op op_b : {Op::none, Op::transpose}) check<Held>({m, n, k, op_a, op_b});
  }
}

}  // namespace kozero::kernels
