// SPDX-FileCopyrightText: The KoZeRO authors
// SPDX-License-Identifier: Apache-2.0
// test_reduce.cpp: sums in double against a plain loop, on one thread and on all, and the first non-finite element.
#include <limits>

#include "kernels/launch/reduce.hpp"

#include "reference.hpp"

namespace kozero::kernels {
namespace {

using reference::Filled;

TEST_CASE("sums in double agree with a plain loop") {
  for (const std::int64_t extent : {0, 1, 13, 4096, 4097, 30011}) {
    const std::vector<float> x = reference::numbers(extent, 1);
    double sum = 0.0;
    double squares = 0.0;
    for (const float value : x) {
      sum += value;
      squares += static_cast<double>(value) * value;
    }
    const Filled<float> values(x);
    CHECK(std::abs(sum_in_blocks(Device(), values.input()) - sum) <= 1e-12 * static_cast<double>(extent));
    CHECK(std::abs(sum_of_squares(Device(), values.input()) - squares) <= 1e-12 * static_cast<double>(extent));
  }
}

TEST_CASE("a sum over more blocks than one dispatch takes is complete") {
  const std::int64_t extent = 1024 * kSumBlock + 5;
  const Filled<float> ones(std::vector<float>(static_cast<std::size_t>(extent), 1.0F));
  CHECK(sum_in_blocks(Device(), ones.input()) == static_cast<double>(extent));
}

TEST_CASE("sums give the same bits on one thread as on all") {
  if constexpr (runs_on_host<Device>) {
    const Filled<float> x(reference::numbers(100003, 2));
    CHECK(sum_in_blocks(Device(), x.input()) == sum_in_blocks(Kokkos::Serial(), x.input()));
    CHECK(sum_of_squares(Device(), x.input()) == sum_of_squares(Kokkos::Serial(), x.input()));
  }
}

TEST_CASE("squares of large floats do not overflow") {
  const Filled<float> x(std::vector<float>(3, 3e38F));
  CHECK(std::isfinite(sum_of_squares(Device(), x.input())));
}

TEST_CASE("first_non_finite names the smallest index") {
  std::vector<float> x = reference::numbers(10007, 3);
  const auto first = [](const std::vector<float>& values) {
    return first_non_finite(Device(), Filled<float>(values).input());
  };
  CHECK(first(x) == -1);
  CHECK(first({}) == -1);
  CHECK(first({std::numeric_limits<float>::max(), -std::numeric_limits<float>::denorm_min()}) == -1);
  x[10006] = std::numeric_limits<float>::quiet_NaN();
  CHECK(first(x) == 10006);
  x[5000] = -std::numeric_limits<float>::infinity();
  CHECK(first(x) == 5000);
  x[0] = std::numeric_limits<float>::infinity();
  CHECK(first(x) == 0);
}

}  // namespace
}  // namespace kozero::kernels
