// SPDX-FileCopyrightText: The KoZeRO authors
// SPDX-License-Identifier: Apache-2.0
// test_rope.cpp: RoPE against complex rotations; backward is the transpose and the inverse of forward.
#include <complex>

#include "kernels/ops/rope.hpp"

#include "reference.hpp"

namespace kozero::kernels {
namespace {

using reference::Filled;

constexpr std::int64_t kBatch = 2;
constexpr std::int64_t kPositions = 7;
constexpr std::int64_t kRows = kBatch * kPositions;
constexpr std::int64_t kHeadDim = 6;
constexpr std::int64_t kHeads = 5;  // 3 of them are rotated
constexpr std::int64_t kTurning = 3;
constexpr std::int64_t kWidth = kHeads * kHeadDim;
constexpr std::int64_t kHalf = kHeadDim / 2;

struct Tables {
  Filled<float> cosines = Filled<float>(kPositions * kHalf);
  Filled<float> sines = Filled<float>(kPositions * kHalf);

  Tables() {
    rope_tables(Device(), cosines.matrix(kPositions, kHalf), sines.matrix(kPositions, kHalf), {.theta = 10000.0});
  }
  [[nodiscard]] Matrix<const float> cosine() const { return cosines.input(kPositions, kHalf); }
  [[nodiscard]] Matrix<const float> sine() const { return sines.input(kPositions, kHalf); }
};

/// The pair (a, b) as a complex number, times exp(i angle). Positions begin again after `period` rows.
std::vector<double> expected_output(const std::vector<double>& qkv, double direction, std::size_t period = kPositions) {
  std::vector<double> out = qkv;
  for (std::size_t n = 0; n < kRows; ++n) {
    for (std::size_t head = 0; head < kTurning; ++head) {
      for (std::size_t i = 0; i < kHalf; ++i) {
        const double frequency = std::pow(10000.0, -2.0 * static_cast<double>(i) / kHeadDim);
        const double angle = direction * static_cast<double>(n % period) * frequency;
        const std::size_t at = n * kWidth + head * kHeadDim + i;
        const std::complex<double> turned = std::complex(qkv[at], qkv[at + kHalf]) * std::polar(1.0, angle);
        out[at] = turned.real();
        out[at + kHalf] = turned.imag();
      }
    }
  }
  return out;
}

TEMPLATE_LIST_TEST_CASE("rope turns the first heads by position and leaves the others", "", reference::StoredTypes) {
  const std::vector<float> values = reference::numbers<TestType>(kRows * kWidth, 1);
  const Tables tables;
  const Filled<TestType> qkv(values);
  rope_forward(Device(), qkv.matrix(kRows, kWidth), kTurning, kHeadDim, tables.cosine(), tables.sine());
  reference::require_near_in<TestType>(qkv.values(), expected_output(reference::in_double(values), 1.0), 1e-6);
}

TEMPLATE_LIST_TEST_CASE("rope_backward is the forward's transpose, and its inverse", "", reference::StoredTypes) {
  const std::vector<float> values = reference::numbers<TestType>(kRows * kWidth, 1);
  const std::vector<float> dy = reference::numbers<TestType>(kRows * kWidth, 2);
  const Tables tables;
  const Filled<TestType> gradient(dy);
  rope_backward(Device(), gradient.matrix(kRows, kWidth), kTurning, kHeadDim, tables.cosine(), tables.sine());
  const auto loss = [&](const std::vector<double>& at) {
    return reference::weighted_sum(dy, expected_output(at, 1.0));
  };
  reference::require_near_in<TestType>(gradient.values(), reference::gradient(loss, reference::in_double(values)),
                                       1e-5);
  rope_forward(Device(), gradient.matrix(kRows, kWidth), kTurning, kHeadDim, tables.cosine(), tables.sine());
  // a and b were rounded once before the result was rounded.
  reference::require_near(gradient.values(), dy,
                          std::is_same_v<TestType, float> ? 1e-6 : 1.5 * reference::kRounding<TestType>);
}

TEMPLATE_LIST_TEST_CASE("rope turns by given positions, and back", "", reference::StoredTypes) {
  const std::vector<float> values = reference::numbers<TestType>(kRows * kWidth, 1);
  const Tables tables;
  std::vector<std::int32_t> fives;
  for (std::int32_t n = 0; n < kRows; ++n) fives.push_back(n % 5);
  const Filled<std::int32_t> positions(fives);
  const Filled<TestType> forward(values), backward(values);
  rope_forward_at(Device(), forward.matrix(kRows, kWidth), kTurning, GivenPositions{positions.input()}, tables.cosine(),
                  tables.sine());
  rope_backward_at(Device(), backward.matrix(kRows, kWidth), kTurning, GivenPositions{positions.input()},
                   tables.cosine(), tables.sine());
  const std::vector<double> in = reference::in_double(values);
  reference::require_near_in<TestType>(forward.values(), expected_output(in, 1.0, 5), 1e-6);
  reference::require_near_in<TestType>(backward.values(), expected_output(in, -1.0, 5), 1e-6);
}

TEST_CASE("rope takes no rows and refuses tables of another head size") {
  const Tables tables;
  const Filled<float> none(0), qkv(kRows * kWidth);
  rope_forward(Device(), none.matrix(0, kWidth), kTurning, kHeadDim, tables.cosine(), tables.sine());
  CHECK_THROWS_AS(rope_forward(Device(), qkv.matrix(kRows, kWidth), kTurning, 8, tables.cosine(), tables.sine()),
                  Error);
}

}  // namespace
}  // namespace kozero::kernels
