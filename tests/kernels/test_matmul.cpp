// SPDX-FileCopyrightText: The KoZeRO authors
// SPDX-License-Identifier: Apache-2.0
// test_matmul.cpp: the matrix product against a plain loop in double: all operations, odd and empty extents, biases
// and their gradients.
#include <array>
#include <string>

#include <catch2/generators/catch_generators.hpp>
#include <catch2/matchers/catch_matchers_exception.hpp>
#include <catch2/matchers/catch_matchers_string.hpp>

#include "gradient_case.hpp"

namespace kozero::kernels {

TEMPLATE_LIST_TEST_CASE("matmul agrees with a plain loop for every pair of operations", "[matmul]", ProductTypes) {
  check_all_operations<TestType>(7, 13, 5);
  check_all_operations<TestType>(64, 32, 48);
  check_all_operations<TestType>(33, 129, 65);
}

TEMPLATE_LIST_TEST_CASE("portable products and the compared library agree with a plain loop", "[matmul]",
                        ProductTypes) {
  choose_products(Products::portable);
  check_all_operations<TestType>(33, 129, 65);
  choose_products(Products::fastest);
  if (!compared_library().empty()) {
    use_compared_library(true);
    check_all_operations<TestType>(33, 129, 65);
    use_compared_library(false);
  }
}

TEMPLATE_LIST_TEST_CASE("matmul takes vectors and single elements as matrices", "[matmul]", ProductTypes) {
  check_all_operations<TestType>(1, 1, 1);
  check_all_operations<TestType>(1, 13, 7);
  check_all_operations<TestType>(13, 1, 7);
  check_all_operations<TestType>(7, 13, 1);
}

TEMPLATE_LIST_TEST_CASE("matmul of a few rows agrees with a plain loop", "[matmul]", ProductTypes) {
  for (const std::int64_t m : {1, 3, 8}) {
    check_all_operations<TestType>(m, 300, 261);  // two panels, three ranges; the last of each is short
    check_all_operations<TestType>(m, 512, 128);
  }
}

TEMPLATE_LIST_TEST_CASE("a row of a product of a few rows has the same bits alone", "[matmul]",
                        reference::StoredTypes) {
  const Case<Types<TestType, TestType>> of{5, 300, 261, Op::none, GENERATE(Op::none, Op::transpose)};
  const auto a = of.a();
  const auto b = of.b();
  const Filled<TestType> together(5 * 300), alone(300);
  matmul(Device(), together.matrix(5, 300), Op::none, of.shaped_a(a), of.op_b, of.shaped_b(b), false);
  const auto row = as_matrix(slice(a.input(), 3 * 261, 261), 1, 261);
  matmul(Device(), alone.matrix(1, 300), Op::none, row, of.op_b, of.shaped_b(b), false);
  Device().fence();
  const std::vector<float> all = together.values();
  if (runs_on_host<Device>) CHECK(reference::same_bits(alone.values(), {all.begin() + 900, all.begin() + 1200}));
}

TEMPLATE_LIST_TEST_CASE("matmul is right where rows are multiples of 4 KiB", "[matmul]", ProductTypes) {
  check_all_operations<TestType>(131, 1024, 9);
  check_all_operations<TestType>(131, 9, 1024);
  check_all_operations<TestType>(1024, 17, 9);
}

TEMPLATE_LIST_TEST_CASE("matmul of an empty inner extent is zero, the bias, or what was there", "[matmul]",
                        ProductTypes) {
  check_all_operations<TestType>(7, 13, 0);
}

TEMPLATE_LIST_TEST_CASE("matmul of no rows or no columns does nothing", "[matmul]", ProductTypes) {
  check<TestType>({0, 13, 5, Op::none, Op::none});
  check<TestType>({7, 0, 5, Op::transpose, Op::none});
}

TEMPLATE_LIST_TEST_CASE("matmul repeats bit for bit, with other shapes between", "[matmul]", ProductTypes) {
  const Case<TestType> of{150, 200, 1024, Op::none, Op::transpose};
  const std::vector<float> first = product_of(of, false);
  check<TestType>({131, 1024, 9, Op::none, Op::none});
  REQUIRE(reference::same_bits(first, product_of(of, false)));
}

TEMPLATE_LIST_TEST_CASE("a product onto an addend is the product, the bias and the addend, rounded once", "[matmul]",
                        reference::StoredTypes) {
  const auto [m, n, k] = GENERATE(std::array<std::int64_t, 3>{7, 13, 5}, std::array<std::int64_t, 3>{70, 129, 65},
                                  std::array<std::int64_t, 3>{64, 72, 0});
  const Case<Types<TestType, TestType>> of{m, n, k, Op::none, GENERATE(Op::none, Op::transpose)};
  const auto a = of.a();
  const auto b = of.b();
  const auto bias = of.bias();
  const Filled<TestType> addend(reference::numbers<TestType>(m * n, 6)), y(m * n);
  std::vector<double> expected = plain_product(of);
  const auto add = [&](const std::vector<float>& values) {
    for (std::size_t i = 0; i < expected.size(); ++i) expected[i] += static_cast<double>(values[i % values.size()]);
  };
  const auto check_sum = [&](VectorIn<TestType> of_bias, int addends) {
    matmul_add<Device, TestType>(Device(), y.matrix(m, n), a.input(m, k), of.op_b, of.shaped_b(b), of_bias,
                                 addend.input(m, n));
    Device().fence();
    require_sum_near<TestType>(y.values(), expected, 1e-6 + 2e-7 * static_cast<double>(k), addends);
  };
  add(addend.values());
  check_sum({}, 1);
  add(bias.values());
  check_sum(bias.input(), 2);
}

/// On a host the bits are the same, except that AMX applies a GELU before it rounds. So does cuBLASLt, with its own
/// tanh.
template <class T>
void require_alike(const Filled<T>& got, const Filled<T>& expected) {
  if (runs_on_host<Device> && std::string_view(multiplier<T>()) != "AMX") {
    CHECK(reference::same_bits(got.values(), expected.values()));
    return;
  }
  const std::vector<double> wanted = reference::in_double(expected.values());
  double largest = 1.0;
  for (const double value : wanted) largest = std::max(largest, std::abs(value));
  reference::require_near(got.values(), wanted,
                          std::is_same_v<T, float> ? 1e-5 : 2.0 * reference::kRounding<T> * largest);
}

TEMPLATE_LIST_TEST_CASE("a product through a GELU is the product and the GELU one after the other", "[matmul]",
                        reference::StoredTypes) {
  const auto extents = GENERATE(std::array<std::int64_t, 3>{7, 13, 5}, std::array<std::int64_t, 3>{70, 129, 65},
                                std::array<std::int64_t, 3>{64, 72, 40}, std::array<std::int64_t, 3>{33, 40, 0});
  const auto [m, n, k] = extents;
  const Filled<TestType> a(reference::numbers<TestType>(m * k, 1));
  const Filled<TestType> b(reference::numbers<TestType>(k * n, 2));
  const Filled<TestType> bias(reference::numbers<TestType>(n, 4));
  const Filled<TestType> before(reference::numbers<TestType>(m * n, 5));
  const Filled<TestType> hidden(m * n), active(m * n), plain(m * n), expected(m * n);

  matmul_gelu<Device, TestType>(Device(), hidden.matrix(m, n), active.matrix(m, n), a.input(m, k), Op::none,
                                b.input(k, n), bias.input());
  matmul(Device(), plain.matrix(m, n), Op::none, a.input(m, k), Op::none, b.input(k, n), bias.input());
  gelu_forward(Device(), expected.vector(), plain.input());
  require_alike(hidden, plain);
  require_alike(active, expected);

  matmul_gelu<Device, TestType>(Device(), hidden.matrix(m, n), active.matrix(m, n), a.input(m, k), Op::none,
                                b.input(k, n), {});
  matmul(Device(), plain.matrix(m, n), Op::none, a.input(m, k), Op::none, b.input(k, n), false);
  gelu_forward(Device(), expected.vector(), plain.input());
  require_alike(hidden, plain);
  require_alike(active, expected);

  matmul_gelu_gradient<Device, TestType>(Device(), active.matrix(m, n), a.input(m, k), Op::none, b.input(k, n),
                                         before.input(m, n));
  matmul(Device(), plain.matrix(m, n), Op::none, a.input(m, k), Op::none, b.input(k, n), false);
  gelu_backward(Device(), expected.vector(), plain.input(), before.input());
  require_alike(active, expected);
}

TEMPLATE_LIST_TEST_CASE("the gradients of a weight and its bias agree with plain loops", "[matmul]",
                        reference::StoredTypes) {
  const auto summed = GENERATE(Operand::a, Operand::b);
  const auto accumulate = GENERATE(false, true);
  const auto skipped = GENERATE(0, 1);
  for (const auto& [m, n, k] : {std::array<std::int64_t, 3>{7, 13, 5},
                                {70, 129, 65},
                                {64, 72, 40},
                                {24, 136, 300},
                                {128, 64, 1},
                                {33, 40, 0},
                                {1, 1, 9}}) {
    check_gradients(GradientCase<TestType>{m, n, k, summed, accumulate, skipped});
  }
}

TEMPLATE_LIST_TEST_CASE("the gradients of a weight and its bias repeat bit for bit", "[matmul]",
                        reference::StoredTypes) {
  const GradientCase<TestType> of{64, 96, 4096, GENERATE(Operand::a, Operand::b), true};
  const WeightGradients first = gradients_of(of);
  for (int i = 0; i < 3; ++i) {
    const WeightGradients again = gradients_of(of);
    CHECK(reference::same_bits(first.dweight, again.dweight));
    CHECK(reference::same_bits(first.dbias, again.dbias));
  }
}

TEST_CASE("matmul refuses extents that disagree", "[matmul]") {
  const Filled<float> x(64);
  REQUIRE_THROWS_WITH(matmul(Device(), x.matrix(4, 4), Op::none, x.input(4, 5), Op::none, x.input(4, 4), false),
                      Catch::Matchers::ContainsSubstring("disagree"));
  REQUIRE_THROWS_WITH(
      matmul(Device(), x.matrix(4, 4), Op::none, x.input(4, 4), Op::none, x.input(4, 4), slice(x.input(), 0, 3)),
      Catch::Matchers::ContainsSubstring("one element for each column"));
  REQUIRE_THROWS_WITH(
      (matmul_add<Device, float>(Device(), x.matrix(4, 4), x.input(4, 4), Op::none, x.input(4, 4), {}, x.input(4, 5))),
      Catch::Matchers::ContainsSubstring("the addend differ in extent"));
  const Filled<float> workspace(row_reduction_workspace(4));
  const auto gradient = [&](std::int64_t channels, std::int64_t room) {
    matmul_bias_gradient<Device, float>(Device(), x.matrix(4, 5), x.input(3, 4), x.input(3, 5), false, Operand::a,
                                        slice(x.vector(), 0, channels), slice(workspace.vector(), 0, room));
  };
  REQUIRE_THROWS_WITH(gradient(5, row_reduction_workspace(4)),
                      Catch::Matchers::ContainsSubstring("dbias (C) and dy (K, C) differ in C"));
  REQUIRE_THROWS_WITH(gradient(4, row_reduction_workspace(4) - 1),
                      Catch::Matchers::ContainsSubstring("the workspace is too small"));
}

}  // namespace kozero::kernels
