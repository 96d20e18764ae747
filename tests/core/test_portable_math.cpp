// SPDX-FileCopyrightText: The KoZeRO authors
// SPDX-License-Identifier: Apache-2.0
// test_portable_math.cpp: errors of the portable functions against long double, their special values, and their bits.
#include <algorithm>
#include <bit>
#include <catch2/catch_test_macros.hpp>
#include <cmath>
#include <limits>
#include <numbers>

#include <kozero/core/portable_math.hpp>
#include <kozero/core/random.hpp>

using namespace kozero;

namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();
constexpr double kNaN = std::numeric_limits<double>::quiet_NaN();
constexpr int kCount = 50000;

/// |value - exact| in units of the last place of the double next to `exact`.
double ulps(double value, long double exact) {
  const int exponent = std::max(std::ilogb(exact), -1022);
  return static_cast<double>(std::fabs(static_cast<long double>(value) - exact) / std::ldexp(1.0L, exponent - 52));
}

/// The i-th of kCount values from `first` to `last`, random within its interval, both ends included.
double swept(double first, double last, int i) {
  const auto random = static_cast<double>(uniform_of(philox(1, counter_of(static_cast<std::uint64_t>(i))).x[0]));
  const double share = i == 0 ? 0.0 : i == kCount - 1 ? 1.0 : (i + random) / kCount;
  return first + (last - first) * share;
}

/// The largest error of `portable` against `exact` from `first` to `last`.
template <class F, class G>
double worst(double first, double last, const F& portable, const G& exact) {
  double most = 0.0;
  for (int i = 0; i < kCount; ++i) {
    const double x = swept(first, last, i);
    most = std::max(most, ulps(portable(x), exact(x)));
  }
  UNSCOPED_INFO("from " << first << " to " << last << ": " << most << " ulp");
  return most;
}

double worst_exp(double first, double last) {
  return worst(first, last, portable_exp, [](double x) { return std::exp(static_cast<long double>(x)); });
}

double worst_log(double first, double last) {
  return worst(
      first, last, [](double x) { return portable_log(x); },
      [](double x) { return std::log(static_cast<long double>(x)); });
}

double worst_pow(double base, double first, double last) {
  return worst(
      first, last, [=](double y) { return portable_pow(base, y); },
      [=](double y) { return std::pow(static_cast<long double>(base), static_cast<long double>(y)); });
}

double worst_sin_cos(double first, double last) {
  const auto sin = [](double x) { return std::sin(static_cast<long double>(x)); };
  const auto cos = [](double x) { return std::cos(static_cast<long double>(x)); };
  return std::max(worst(first, last, portable_sin, sin), worst(first, last, portable_cos, cos));
}

}  // namespace

TEST_CASE("exp is within 1 ulp, to both ends of its range") {
  CHECK(worst_exp(-1.0, 1.0) < 1.0);
  CHECK(worst_exp(-100.0, 0.0) < 1.0);
  CHECK(worst_exp(-745.0, 709.78) < 1.0);
  CHECK(worst_exp(-1e-10, 1e-10) < 1.0);
}

TEST_CASE("exp's special values") {
  CHECK(portable_exp(0.0) == 1.0);
  CHECK(portable_exp(-kInfinity) == 0.0);
  CHECK(portable_exp(-746.0) == 0.0);
  CHECK(portable_exp(-745.0) == 0x1p-1074);
  CHECK(portable_exp(709.79) == kInfinity);
  CHECK(portable_exp(kInfinity) == kInfinity);
  CHECK(std::isnan(portable_exp(kNaN)));
}

TEST_CASE("log is within 1 ulp, near 1, at each power of two and for subnormal numbers") {
  CHECK(worst_log(0.5, 2.0) < 1.0);
  CHECK(worst_log(1.0 - 1e-6, 1.0 + 1e-6) < 1.0);
  CHECK(worst_log(0x1p-53, 1e-3) < 1.0);
  CHECK(worst_log(1.0, 1e300) < 1.0);
  CHECK(worst_log(0x1p-1074, 0x1p-1021) < 1.0);
  for (int n = -1074; n < 1024; ++n) {
    const double x = std::ldexp(1.0, n);
    CHECK(ulps(portable_log(x), std::log(static_cast<long double>(x))) < 1.0);
  }
}

TEST_CASE("log's special values") {
  CHECK(portable_log(1.0) == 0.0);
  CHECK(portable_log(0.0) == -kInfinity);
  CHECK(portable_log(-0.0) == -kInfinity);
  CHECK(portable_log(kInfinity) == kInfinity);
  CHECK(std::isnan(portable_log(-1.0)));
  CHECK(std::isnan(portable_log(-kInfinity)));
  CHECK(std::isnan(portable_log(kNaN)));
  CHECK(portable_log(2.0F) == static_cast<float>(std::numbers::ln2));
  CHECK(std::isnan(portable_log(std::numeric_limits<float>::quiet_NaN())));
}

TEST_CASE("sin and cos are within 1 ulp for angles to 2^23") {
  CHECK(worst_sin_cos(-1.0, 1.0) < 1.0);
  CHECK(worst_sin_cos(0.0, 2.0 * std::numbers::pi) < 1.0);
  CHECK(worst_sin_cos(-1e6, 1e6) < 1.0);
  CHECK(worst_sin_cos(-0x1p23, 0x1p23) < 1.0);
}

TEST_CASE("sin and cos are within 1 ulp at the doubles next to multiples of pi/4") {
  double most = 0.0;
  for (int n = -1300000; n <= 1300000; ++n) {
    const auto x = static_cast<double>(n * (std::numbers::pi_v<long double> / 4));
    const auto [sin, cos] = portable_sin_cos(x);
    most = std::max(most, ulps(sin, std::sin(static_cast<long double>(x))));
    most = std::max(most, ulps(cos, std::cos(static_cast<long double>(x))));
  }
  INFO(most << " ulp");
  CHECK(most < 1.0);
}

TEST_CASE("sin's and cos's special values") {
  CHECK(portable_sin(0.0) == 0.0);
  CHECK(portable_cos(0.0) == 1.0);
  CHECK(portable_sin(1e-300) == 1e-300);
  for (const double x : {kInfinity, -kInfinity, kNaN, 0x1p24, -1e300}) {
    CHECK(std::isnan(portable_sin(x)));
    CHECK(std::isnan(portable_cos(x)));
  }
}

TEST_CASE("pow is within 2 ulp for powers from exp(-32) to exp(32), and within 24 ulp to the ends of its range") {
  CHECK(worst_pow(10000.0, -1.0, 0.0) < 2.0);
  CHECK(worst_pow(500000.0, -1.0, 0.0) < 2.0);
  CHECK(worst_pow(1e12, -1.0, 1.0) < 2.0);
  CHECK(worst_pow(0.999, -1000.0, 1000.0) < 2.0);
  CHECK(worst_pow(1.0 + 0x1p-52, 0.0, 1e16) < 2.0);
  for (const double base : {1e-300, 0x1p-1074, 0.3, 0.7071, 0.95, 1.41, 1.5, 10.0, 1e6, 1e300}) {
    const double unit = 1.0 / std::log(base);
    CHECK(worst_pow(base, -32.0 * unit, 32.0 * unit) < 2.0);
    CHECK(worst_pow(base, -708.0 * unit, 708.0 * unit) < 24.0);
  }
}

TEST_CASE("pow's special values") {
  CHECK(portable_pow(500000.0, -0.0) == 1.0);
  CHECK(portable_pow(1.0, 1e300) == 1.0);
  CHECK(portable_pow(7.0, 1.0) == 7.0);
  CHECK(portable_pow(2.0, 1e300) == kInfinity);
  CHECK(portable_pow(2.0, -1e20) == 0.0);
  for (const double base : {0.0, -2.0, kInfinity, kNaN}) CHECK(std::isnan(portable_pow(base, 2.0)));
  CHECK(std::isnan(portable_pow(2.0, kNaN)));
}

TEST_CASE("integer powers") {
  CHECK(integer_power(0.9, 0) == 1.0);
  CHECK(integer_power(0.9, 1) == 0.9);
  CHECK(integer_power(3.0, 30) == 205891132094649.0);
  CHECK(integer_power(0.0, 5) == 0.0);
  CHECK(integer_power(0.9, 1000000000000) == 0.0);
  for (const std::int64_t count : {2, 3, 7, 100, 999, 20000}) {
    const long double exact = std::pow(static_cast<long double>(0.999), static_cast<long double>(count));
    CHECK(ulps(integer_power(0.999, count), exact) <= static_cast<double>(count));
  }
}

TEST_CASE("the bits are those of every other compiler and processor") {
  std::uint64_t hash = 0;
  const auto add = [&hash](double value) {
    hash = (hash ^ std::bit_cast<std::uint64_t>(value)) * 0x100000001B3ULL;
    hash ^= hash >> 29;
  };
  for (int i = 0; i < 1000000; ++i) {
    const double x = i * 1e-3 - 500.123;
    const SinCos turn = portable_sin_cos(x * 97.1);
    for (const double value : {portable_exp(x), portable_log((x + 500.2) * 1e-3), turn.sin, turn.cos}) add(value);
    add(portable_pow(1.0 + i, x * 1e-2));
  }
  CHECK(hash == 0x2BCC9B69C6BCC472ULL);  // g++ 12 and clang++ 14, -O0 and -O3, x86-64, Haswell and AVX-512
}
