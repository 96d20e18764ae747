// SPDX-FileCopyrightText: The KoZeRO authors
// SPDX-License-Identifier: Apache-2.0
// test_matmul.cpp: the matrix product against a plain loop in double: all operations, odd and empty extents, biases.
#include <string>

#include <catch2/matchers/catch_matchers_exception.hpp>
#include <catch2/matchers/catch_matchers_string.hpp>

#include <kozero/kernels/matmul.hpp>

#include "reference.hpp"

namespace kozero::kernels {
namespace {

using reference::Filled;

struct Case {
  std::int64_t m, n, k;
  Op op_a, op_b;

  [[nodiscard]] Filled<float> a() const { return Filled<float>(reference::numbers(m * k, 1)); }
  [[nodiscard]] Filled<float> b() const { return Filled<float>(reference::numbers(k * n, 2)); }
  [[nodiscard]] Filled<float> c() const { return Filled<float>(reference::numbers(m * n, 3)); }
  [[nodiscard]] Filled<float> bias() const { return Filled<float>(reference::numbers(n, 4)); }

  [[nodiscard]] Matrix<const float> shaped_a(const Filled<float>& x) const {
    return op_a == Op::none ? x.input(m, k) : x.input(k, m);
  }
  [[nodiscard]] Matrix<const float> shaped_b(const Filled<float>& x) const {
    return op_b == Op::none ? x.input(k, n) : x.input(n, k);
  }
};

/// op(a) op(b) in double.
std::vector<double> plain_product(const Case& of) {
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

std::vector<float> product_of(const Case& of, bool accumulate) {
  const Filled<float> a = of.a();
  const Filled<float> b = of.b();
  const Filled<float> c = of.c();
  matmul(Device(), c.matrix(of.m, of.n), of.op_a, of.shaped_a(a), of.op_b, of.shaped_b(b), accumulate);
  Device().fence();
  return c.values();
}

std::vector<float> biased_product_of(const Case& of) {
  const Filled<float> a = of.a();
  const Filled<float> b = of.b();
  const Filled<float> c = of.c();
  const Filled<float> bias = of.bias();
  matmul(Device(), c.matrix(of.m, of.n), of.op_a, of.shaped_a(a), of.op_b, of.shaped_b(b), bias.input());
  Device().fence();
  return c.values();
}

/// Checks the plain, the accumulating and the biased product.
void check(const Case& of) {
  CAPTURE(of.m, of.n, of.k, of.op_a == Op::transpose, of.op_b == Op::transpose);
  const double tolerance = 1e-6 + 2e-7 * static_cast<double>(of.k);
  const std::vector<double> expected = plain_product(of);
  reference::require_near(product_of(of, false), expected, tolerance);

  std::vector<double> added = expected;
  const std::vector<float> before = of.c().values();
  for (std::size_t i = 0; i < added.size(); ++i) added[i] += static_cast<double>(before[i]);
  reference::require_near(product_of(of, true), added, tolerance);

  std::vector<double> biased = expected;
  const std::vector<float> bias = of.bias().values();
  for (std::size_t i = 0; i < biased.size(); ++i) biased[i] += static_cast<double>(bias[i % bias.size()]);
  reference::require_near(biased_product_of(of), biased, tolerance);
}

void check_all_operations(std::int64_t m, std::int64_t n, std::int64_t k) {
  for (const Op op_a : {Op::none, Op::transpose}) {
    for (const Op op_b : {Op::none, Op::transpose}) check({m, n, k, op_a, op_b});
  }
}

}  // namespace

TEST_CASE("matmul agrees with a plain loop for every pair of operations", "[matmul]") {
  check_all_operations(7, 13, 5);
  check_all_operations(64, 32, 48);
  check_all_operations(33, 129, 65);
}

TEST_CASE("matmul takes vectors and single elements as matrices", "[matmul]") {
  check_all_operations(1, 1, 1);
  check_all_operations(1, 13, 7);
  check_all_operations(13, 1, 7);
  check_all_operations(7, 13, 1);
}

TEST_CASE("matmul is right where rows are multiples of 4 KiB", "[matmul]") {
  check_all_operations(131, 1024, 9);
  check_all_operations(131, 9, 1024);
  check_all_operations(1024, 17, 9);
}

TEST_CASE("matmul of an empty inner extent is zero, the bias, or what was there", "[matmul]") {
  check_all_operations(7, 13, 0);
}

TEST_CASE("matmul of no rows or no columns does nothing", "[matmul]") {
  check({0, 13, 5, Op::none, Op::none});
  check({7, 0, 5, Op::transpose, Op::none});
}

TEST_CASE("matmul repeats bit for bit, with other shapes between", "[matmul]") {
  const Case of{150, 200, 1024, Op::none, Op::transpose};
  const std::vector<float> first = product_of(of, false);
  check({131, 1024, 9, Op::none, Op::none});
  REQUIRE(reference::same_bits(first, product_of(of, false)));
}

TEST_CASE("matmul refuses extents that disagree", "[matmul]") {
  const Filled<float> x(64);
  REQUIRE_THROWS_WITH(matmul(Device(), x.matrix(4, 4), Op::none, x.input(4, 5), Op::none, x.input(4, 4), false),
                      Catch::Matchers::ContainsSubstring("disagree"));
  REQUIRE_THROWS_WITH(
      matmul(Device(), x.matrix(4, 4), Op::none, x.input(4, 4), Op::none, x.input(4, 4), slice(x.input(), 0, 3)),
      Catch::Matchers::ContainsSubstring("one element for each column"));
}

}  // namespace kozero::kernels
