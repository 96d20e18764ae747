// SPDX-FileCopyrightText: The KoZeRO authors
// SPDX-License-Identifier: Apache-2.0
// test_median.cpp: the median of few values, and a long series thinned to a bounded sample of it.
#include <catch2/catch_test_macros.hpp>

#include <kozero/core/timing.hpp>

using kozero::median;
using kozero::ThinnedSeries;

TEST_CASE("the median is the upper one of an even number of values, and 0 of none") {
  CHECK(median({}) == 0.0);
  CHECK(median({3.0}) == 3.0);
  CHECK(median({4.0, 1.0, 3.0, 2.0}) == 3.0);
}

TEST_CASE("a thinned series keeps all values while they fit") {
  ThinnedSeries series;
  for (std::size_t i = 0; i < ThinnedSeries::kCapacity; ++i) series.add(static_cast<double>(i));
  REQUIRE(series.values().size() == ThinnedSeries::kCapacity);
  CHECK(series.values().back() == static_cast<double>(ThinnedSeries::kCapacity - 1));
}

TEST_CASE("a thinned series of any length takes no further memory, and its values are evenly spaced from the first") {
  ThinnedSeries series;
  const double* memory = series.values().data();
  for (int i = 0; i < 1'000'000; ++i) {
    series.add(i);
    if (i % 9973 != 0) continue;
    const auto& values = series.values();
    const double stride = values.size() > 1 ? values[1] - values[0] : 1.0;
    bool even = true;
    for (std::size_t k = 0; k < values.size(); ++k) even = even && values[k] == static_cast<double>(k) * stride;
    CHECK(even);
    CHECK(values.size() * 2 >= std::min<std::size_t>(static_cast<std::size_t>(i), ThinnedSeries::kCapacity));
    CHECK(values.back() + stride > i);  // the sample reaches the end of the series
  }
  CHECK(series.values().data() == memory);
}
