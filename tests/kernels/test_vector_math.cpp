// SPDX-FileCopyrightText: The KoZeRO authors
// SPDX-License-Identifier: Apache-2.0
// test_vector_math.cpp: exponentials and the logistic function against double, at all magnitudes.
#include <algorithm>
#include <limits>

#include <kozero/core/device.hpp>
#include "kernels/launch/for_each.hpp"
#include "kernels/launch/vector_math.hpp"

#include "reference.hpp"

namespace kozero::kernels {
namespace {

/// |got - exact| in units of the float spacing at `exact`.
double in_ulps(float got, double exact) {
  const float magnitude = static_cast<float>(std::abs(exact));
  const double spacing = std::nextafter(magnitude, std::numeric_limits<float>::infinity()) - magnitude;
  return std::abs(static_cast<double>(got) - exact) / spacing;
}

template <class Fast, class Exact>
double worst_ulps(double from, double to, const Fast& fast, const Exact& exact) {
  constexpr int kPoints = 200000;
  double worst = 0.0;
  for (int i = 0; i <= kPoints; ++i) {
    const auto x = static_cast<float>(from + (to - from) * i / kPoints);
    worst = std::max(worst, in_ulps(fast(x), exact(static_cast<double>(x))));
  }
  return worst;
}

double logistic(double x) { return 1.0 / (1.0 + std::exp(-x)); }

TEST_CASE("fast_exp is within 2 units in the last place of double") {
  const auto exact = [](double x) { return std::exp(x); };
  CHECK(worst_ulps(-86.9, 88.7, fast_exp, exact) <= 2.0);
  CHECK(worst_ulps(-1.0, 1.0, fast_exp, exact) <= 2.0);
}

TEST_CASE("fast_exp goes to zero, to infinity and keeps NaN") {
  const float infinity = std::numeric_limits<float>::infinity();
  CHECK(fast_exp(0.0F) == 1.0F);
  CHECK(fast_exp(-infinity) == 0.0F);
  CHECK(fast_exp(-1000.0F) == 0.0F);
  CHECK(fast_exp(-87.0F) == 0.0F);  // 2^-125.51
  CHECK(fast_exp(infinity) == infinity);
  CHECK(fast_exp(89.0F) == infinity);
  CHECK(std::isfinite(fast_exp(88.72F)));
  CHECK(std::isnan(fast_exp(std::numeric_limits<float>::quiet_NaN())));
  CHECK(std::isnan(fast_exp(-std::numeric_limits<float>::quiet_NaN())));
}

TEST_CASE("fast_exp2 is within 2 units in the last place of double") {
  const auto exact = [](double x) { return std::exp2(x); };
  CHECK(worst_ulps(-125.49, 127.99, fast_exp2, exact) <= 2.0);
  CHECK(worst_ulps(-1.0, 1.0, fast_exp2, exact) <= 2.0);
}

TEST_CASE("fast_exp2 of a finite float goes to zero and to infinity, and keeps NaN") {
  const float infinity = std::numeric_limits<float>::infinity();
  const bool gpu_branch = kHostIsDevice && !runs_on_host<Device>;  // device_on_host/device_branches.hpp
  for (const float x : {-125.6F, -126.0F, -300.0F, -1e5F, -1e10F, -3e38F}) {
    CHECK(fast_exp2(x) == (gpu_branch ? std::exp2(x) : 0.0F));
  }
  for (const float x : {128.0F, 128.6F, 129.0F, 300.0F, 1e5F, 1e10F, 3e38F}) CHECK(fast_exp2(x) == infinity);
  for (const float n : {-125.0F, -1.0F, 0.0F, 1.0F, 127.0F}) CHECK(fast_exp2(n) == std::exp2(n));
  CHECK(std::isnan(fast_exp2(std::numeric_limits<float>::quiet_NaN())));
  CHECK(std::isnan(fast_exp2(-std::numeric_limits<float>::quiet_NaN())));
}

TEST_CASE("fast_sigmoid is within 3 units in the last place and saturates") {
  CHECK(worst_ulps(-80.0, 80.0, fast_sigmoid, logistic) <= 3.0);
  CHECK(fast_sigmoid(-1000.0F) == 0.0F);
  CHECK(fast_sigmoid(1000.0F) == 1.0F);
}

}  // namespace
}  // namespace kozero::kernels
