// SPDX-FileCopyrightText: The KoZeRO authors
// SPDX-License-Identifier: Apache-2.0
// reference.hpp: arrays and comparisons for kernel tests.
// A Filled array is owned by the test, has repeatable numbers, and gives the Views that kernels take.
// central_difference is the derivative of a double function of one array along one element, the reference for every
// backward. Kernels are tested in each storage type T. Inputs are numbers that T represents exactly, and expected
// values are computed from them in double. Outputs may differ by float's tolerance and, in 16 bits, by a rounding of
// the largest.
#pragma once
#include <algorithm>
#include <catch2/catch_template_test_macros.hpp>
#include <catch2/catch_test_macros.hpp>
#include <catch2/matchers/catch_matchers_floating_point.hpp>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <tuple>
#include <type_traits>
#include <vector>

#include <kozero/core/precision.hpp>
#include <kozero/core/random.hpp>
#include <kozero/core/views.hpp>

namespace kozero::kernels::reference {

using StoredTypes = std::tuple<float, Bfloat16, Float16>;

/// The largest relative error of one rounding to T.
template <class T>
inline constexpr double kRounding = std::is_same_v<T, float>      ? 0x1p-24
                                    : std::is_same_v<T, Bfloat16> ? 0x1p-8
                                                                  : 0x1p-11;

/// The values rounded to T.
template <class T>
std::vector<float> stored_as(std::vector<float> values) {
  for (float& value : values) value = static_cast<float>(static_cast<T>(value));
  return values;
}

/// Repeatable numbers in [-1, 1) that T represents exactly, different for each seed. Their sums round, so the bits of a
/// sum depend on its order.
template <class T = float>
std::vector<float> numbers(std::int64_t extent, std::uint64_t seed) {
  std::vector<float> values(static_cast<std::size_t>(extent));
  for (std::size_t i = 0; i < values.size(); ++i) {
    values[i] = (2.0F * uniform_of(philox(seed, counter_of(i)).x[0]) - 1.0F) / 1.1F;
  }
  return stored_as<T>(std::move(values));
}

/// Device memory with copies to and from the host. The host has 16-bit values as floats.
template <class T>
class Filled {
 public:
  using Value = std::conditional_t<std::is_same_v<T, Bfloat16> || std::is_same_v<T, Float16>, float, T>;

  explicit Filled(const std::vector<Value>& values)
      : memory_(Kokkos::view_alloc("filled", Kokkos::WithoutInitializing), values.size()) {
    const auto host = Kokkos::create_mirror_view(memory_);
    for (std::size_t i = 0; i < values.size(); ++i) host(i) = static_cast<T>(values[i]);
    Kokkos::deep_copy(memory_, host);
  }
  explicit Filled(std::int64_t extent) : Filled(std::vector<Value>(static_cast<std::size_t>(extent), Value{})) {}

  [[nodiscard]] Vector<T> vector() const { return Vector<T>(memory_.data(), memory_.extent(0)); }
  [[nodiscard]] Vector<const T> input() const { return vector(); }
  [[nodiscard]] Matrix<T> matrix(std::int64_t rows, std::int64_t columns) const {
    return as_matrix(vector(), rows, columns);
  }
  [[nodiscard]] Matrix<const T> input(std::int64_t rows, std::int64_t columns) const { return matrix(rows, columns); }
  [[nodiscard]] std::vector<Value> values() const {
    const auto host = Kokkos::create_mirror_view_and_copy(Kokkos::HostSpace(), memory_);
    std::vector<Value> copied;
    for (std::size_t i = 0; i < host.extent(0); ++i) copied.push_back(static_cast<Value>(host(i)));
    return copied;
  }

 private:
  Kokkos::View<T*, DeviceMemory> memory_;
};

inline std::vector<double> in_double(const std::vector<float>& values) { return {values.begin(), values.end()}; }

/// d f(x) / d x[i] by a central difference.
template <class Function>
double central_difference(const Function& f, std::vector<double> x, std::size_t i, double step = 1e-5) {
  const double at = x[i];
  x[i] = at + step;
  const double above = f(x);
  x[i] = at - step;
  return (above - f(x)) / (2.0 * step);
}

/// start + d f(x) / d x, all elements.
template <class Function>
std::vector<double> gradient(const Function& f, const std::vector<double>& x, double start = 0.0) {
  std::vector<double> all;
  for (std::size_t i = 0; i < x.size(); ++i) all.push_back(start + central_difference(f, x, i));
  return all;
}

/// sum of weights[i] * y[i]: the scalar whose gradient with respect to y is `weights`.
inline double weighted_sum(const std::vector<float>& weights, const std::vector<double>& y) {
  double sum = 0.0;
  for (std::size_t i = 0; i < y.size(); ++i) sum += static_cast<double>(weights[i]) * y[i];
  return sum;
}

/// Requires |got - expected| <= tolerance for all elements.
template <class Expected>
void require_near(const std::vector<float>& got, const std::vector<Expected>& expected, double tolerance) {
  REQUIRE(got.size() == expected.size());
  for (std::size_t i = 0; i < got.size(); ++i) {
    if (std::abs(static_cast<double>(got[i]) - static_cast<double>(expected[i])) <= tolerance) continue;
    CAPTURE(i, got[i], expected[i], tolerance);
    FAIL("an element is too far from the expected one");
  }
}

/// The same for outputs in T; `tolerance` is the tolerance for float. 16 bits may differ by `roundings` of the
/// largest.
template <class T, class Expected>
void require_near_in(const std::vector<float>& got, const std::vector<Expected>& expected, double tolerance,
                     double roundings = 1.0) {
  double largest = 0.0;
  for (const auto value : expected) largest = std::max(largest, std::abs(static_cast<double>(value)));
  require_near(got, expected,
               std::is_same_v<T, float> ? tolerance : std::max(tolerance, roundings * kRounding<T> * largest));
}

/// Whether two arrays have the same bits.
inline bool same_bits(const std::vector<float>& a, const std::vector<float>& b) {
  return a.size() == b.size() && (a.empty() || std::memcmp(a.data(), b.data(), a.size() * sizeof(float)) == 0);
}

}  // namespace kozero::kernels::reference
