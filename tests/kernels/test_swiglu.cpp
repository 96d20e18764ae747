// SPDX-FileCopyrightText: The KoZeRO authors
// SPDX-License-Identifier: Apache-2.0
// test_swiglu.cpp: SwiGLU against its formula in double, its gradient against central differences.
#include "kernels/ops/swiglu.hpp"

#include "reference.hpp"

namespace kozero::kernels {
namespace {

using reference::Filled;

constexpr std::int64_t kRows = 7;
constexpr std::int64_t kWidth = 13;

std::vector<double> expected_output(const std::vector<double>& gate_up) {
  std::vector<double> y;
  for (std::size_t n = 0; n < kRows; ++n) {
    for (std::size_t c = 0; c < kWidth; ++c) {
      const double gate = gate_up[n * 2 * kWidth + c];
      y.push_back(gate / (1.0 + std::exp(-gate)) * gate_up[n * 2 * kWidth + kWidth + c]);
    }
  }
  return y;
}

template <class T>
std::vector<float> wide_numbers() {
  std::vector<float> values = reference::numbers(kRows * 2 * kWidth, 1);
  for (float& value : values) value *= 6.0F;
  return reference::stored_as<T>(values);
}

TEMPLATE_LIST_TEST_CASE("swiglu_forward follows its formula", "", reference::StoredTypes) {
  const Filled<TestType> gate_up(wide_numbers<TestType>()), y(kRows * kWidth);
  swiglu_forward(Device(), y.matrix(kRows, kWidth), gate_up.input(kRows, 2 * kWidth));
  reference::require_near_in<TestType>(y.values(), expected_output(reference::in_double(wide_numbers<TestType>())),
                                       1e-5);
}

TEMPLATE_LIST_TEST_CASE("swiglu_backward overwrites with the central differences of the forward, also in place", "",
                        reference::StoredTypes) {
  const std::vector<float> values = wide_numbers<TestType>();
  const std::vector<float> dy = reference::numbers<TestType>(kRows * kWidth, 2);
  const Filled<TestType> gate_up(values), upper(dy), out(std::vector<float>(values.size(), 9.0F));
  swiglu_backward(Device(), out.matrix(kRows, 2 * kWidth), upper.input(kRows, kWidth),
                  gate_up.input(kRows, 2 * kWidth));
  const auto loss = [&](const std::vector<double>& at) { return reference::weighted_sum(dy, expected_output(at)); };
  reference::require_near_in<TestType>(out.values(), reference::gradient(loss, reference::in_double(values)), 1e-5);
  swiglu_backward(Device(), gate_up.matrix(kRows, 2 * kWidth), upper.input(kRows, kWidth),
                  gate_up.input(kRows, 2 * kWidth));
  CHECK(reference::same_bits(out.values(), gate_up.values()));
}

TEST_CASE("swiglu takes zero extents") {
  const Filled<float> none(0);
  swiglu_forward(Device(), none.matrix(0, kWidth), none.input(0, 2 * kWidth));
  swiglu_backward(Device(), none.matrix(7, 0), none.input(7, 0), none.input(7, 0));
  SUCCEED();
}

}  // namespace
}  // namespace kozero::kernels
