// SPDX-FileCopyrightText: The KoZeRO authors
// SPDX-License-Identifier: Apache-2.0
// test_exact_sum.cpp: sums of squares have equal bits for any order, division and number of threads, and agree with
// long double.
#include <algorithm>
#include <catch2/catch_approx.hpp>
#include <catch2/catch_test_macros.hpp>
#include <cmath>
#include <limits>
#include <random>
#include <vector>

#include "kernels/launch/exact_sum.hpp"

using namespace kozero;
using kernels::ExactSum;

namespace {

ExactSum sum_of(const std::vector<double>& values) {
  ExactSum sum;
  for (const double value : values) {
    kernels::add_exactly(value,
                         [&](int word, std::uint64_t bits) { sum.words[static_cast<std::size_t>(word)] += bits; });
  }
  sum.normalize();
  return sum;
}

}  // namespace

TEST_CASE("doubles of any size are added without a rounding, in any order") {
  std::mt19937_64 random(5);
  std::vector<double> values = {0.0, std::numeric_limits<double>::max() / 8, 0x1p-1022, 1.0, 0x1p-52};
  for (int i = 0; i < 20000; ++i) {
    values.push_back(std::ldexp(static_cast<double>(random() >> 11U), static_cast<int>(random() % 2000) - 1060));
  }
  const ExactSum sum = sum_of(values);
  std::shuffle(values.begin(), values.end(), random);
  CHECK(sum_of(values).words == sum.words);
  CHECK(sum_of({1.0, 0x1p-60, 0x1p-60}).value() == 1.0 + 0x1p-59);  // exactly, then rounded once
  CHECK(sum_of({1e300, 1.0}).words != sum_of({1e300}).words);
  for (const double one : {1.0, 3.5, 0x1p-1000, 0x1.fffffffffffffp+1000, 123456789.125}) {
    CHECK(sum_of({one}).value() == one);
  }
  CHECK(std::isinf(sum_of({1.0, std::numeric_limits<double>::infinity()}).value()));
  CHECK(std::isnan(sum_of({std::numeric_limits<double>::quiet_NaN(), 1.0}).value()));
}

TEST_CASE("the squares of a vector and of its shards are one sum, and it is right") {
  std::mt19937 random(7);
  std::normal_distribution<float> normal(0.0F, 3.0F);
  for (const std::int64_t extent : {1, 63, 64, 65, 640, 64 * 1000 + 17}) {
    const Kokkos::View<float*, DeviceMemory> memory("x", static_cast<std::size_t>(extent));
    const auto host = Kokkos::create_mirror_view(memory);
    long double squares = 0.0L;
    for (std::int64_t i = 0; i < extent; ++i) {
      host(i) = normal(random) * (i % 5 == 0 ? 1e12F : 1e-3F);
      squares += static_cast<long double>(host(i)) * host(i);
    }
    Kokkos::deep_copy(memory, host);
    const Vector<const float> x(memory.data(), static_cast<std::size_t>(extent));
    kernels::SumOfSquares whole;
    whole.add(x);
    CHECK(whole.sum().value() == Catch::Approx(static_cast<double>(squares)).epsilon(1e-14));
    for (const std::int64_t cut : {std::int64_t{64}, extent / 128 * 64}) {
      if (cut <= 0 || cut > extent) continue;
      kernels::SumOfSquares parts;
      parts.clear();
      parts.add(slice(x, cut, extent - cut));
      parts.add(slice(x, 0, cut));
      CHECK(parts.sum().words == whole.sum().words);
    }
  }
}
