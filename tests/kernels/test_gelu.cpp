// SPDX-FileCopyrightText: The KoZeRO authors
// SPDX-License-Identifier: Apache-2.0
// test_gelu.cpp: GELU against its formula in double, and its gradient against central differences.
#include <numbers>

#include "kernels/ops/gelu.hpp"

#include "reference.hpp"

namespace kozero::kernels {
namespace {

using reference::Filled;

double plain_gelu(double x) {
  return 0.5 * x * (1.0 + std::tanh(std::sqrt(2.0 / std::numbers::pi) * (x + 0.044715 * x * x * x)));
}

/// 5003 points of [-12, 12], including both ends and zero.
template <class T>
std::vector<float> points() {
  std::vector<float> x;
  for (int i = 0; i < 5003; ++i) x.push_back(static_cast<float>(-12.0 + 24.0 * i / 5002.0));
  return reference::stored_as<T>(x);
}

TEMPLATE_LIST_TEST_CASE("gelu_forward follows the tanh form", "", reference::StoredTypes) {
  const std::vector<float> x = points<TestType>();
  const Filled<TestType> in(x), out(static_cast<std::int64_t>(x.size()));
  gelu_forward(Device(), out.vector(), in.input());
  std::vector<double> expected;
  for (const float v : x) expected.push_back(plain_gelu(v));
  reference::require_near_in<TestType>(out.values(), expected, 2e-6);
}

TEMPLATE_LIST_TEST_CASE("gelu_backward is the derivative times dy, also in place", "", reference::StoredTypes) {
  const std::vector<float> x = points<TestType>();
  const std::vector<float> dy = reference::numbers<TestType>(static_cast<std::int64_t>(x.size()), 8);
  const Filled<TestType> in(x), upper(dy), out(std::vector<float>(x.size(), 9.0F));
  gelu_backward(Device(), out.vector(), upper.input(), in.input());
  std::vector<double> expected;
  for (std::size_t i = 0; i < x.size(); ++i) {
    const double at = x[i];
    expected.push_back(dy[i] * (plain_gelu(at + 1e-5) - plain_gelu(at - 1e-5)) / 2e-5);
  }
  reference::require_near_in<TestType>(out.values(), expected, 2e-6);
  gelu_backward(Device(), upper.vector(), upper.input(), in.input());
  CHECK(reference::same_bits(out.values(), upper.values()));
}

TEST_CASE("gelu takes far values and no values") {
  const Filled<float> in(std::vector<float>{-1e4F, 1e4F}), out(2), none(0);
  gelu_forward(Device(), out.vector(), in.input());
  CHECK(out.values() == std::vector<float>{0.0F, 1e4F});
  gelu_backward(Device(), out.vector(), Filled<float>(std::vector<float>{1.0F, 1.0F}).input(), in.input());
  CHECK(out.values() == std::vector<float>{0.0F, 1.0F});
  gelu_forward(Device(), none.vector(), none.input());
}

}  // namespace
}  // namespace kozero::kernels
