// SPDX-FileCopyrightText: The KoZeRO authors
// SPDX-License-Identifier: Apache-2.0
// test_rows.cpp: each element and each column of a row is visited once.
#include "kernels/launch/for_each.hpp"
#include "kernels/launch/reduce.hpp"

#include "reference.hpp"

namespace kozero::kernels {
namespace {

using reference::Filled;

void add_one(Vector<float> x) {
  for_each_element(
      Device(), "test::add_one", static_cast<std::int64_t>(x.extent(0)),
      KOKKOS_LAMBDA(std::int64_t i) { x(i) += 1.0F; });
}

void write_row_sums(Vector<float> sums, Matrix<const float> x) {
  const auto columns = static_cast<std::int64_t>(x.extent(1));
  for_each_row(
      Device(), "test::row_sums", static_cast<std::int64_t>(x.extent(0)),
      KOKKOS_LAMBDA(const RowTeam<Device>& team, std::int64_t n) {
        const float sum = row_sum(
            team, columns, [](float v) { return v; }, row_of(x, n));
        Kokkos::single(Kokkos::PerThread(team), [&] { sums(n) = sum; });
      });
}

/// The sums of x and of x^2 over each row, together and one after the other.
void write_two_sums(Matrix<float> together, Matrix<float> apart, Matrix<const float> x) {
  const auto columns = static_cast<std::int64_t>(x.extent(1));
  for_each_row(
      Device(), "test::two_sums", static_cast<std::int64_t>(x.extent(0)),
      KOKKOS_LAMBDA(const RowTeam<Device>& team, std::int64_t n) {
        const float* const row = row_of(x, n);
        const TwoValues both = row_sums(
            team, columns,
            [](float v) {
              return TwoValues{v, v * v};
            },
            row);
        const float first = row_sum(
            team, columns, [](float v) { return v; }, row);
        const float second = row_sum(
            team, columns, [](float v) { return v * v; }, row);
        Kokkos::single(Kokkos::PerThread(team), [&] {
          together(n, 0) = both.first;
          together(n, 1) = both.second;
          apart(n, 0) = first;
          apart(n, 1) = second;
        });
      });
}

TEST_CASE("for_each_element visits every element once") {
  for (const std::int64_t extent : {0, 1, 13, 4096, 4097, 12345}) {
    const Filled<float> x(extent);
    add_one(x.vector());
    CHECK(x.values() == std::vector<float>(static_cast<std::size_t>(extent), 1.0F));
  }
}

TEST_CASE("row_sum adds every column once, for widths around the lanes") {
  constexpr std::int64_t kRows = 19;
  for (const std::int64_t columns : {0, 1, 13, 31, 32, 33, 64, 100}) {
    const std::vector<float> numbers = reference::numbers(kRows * columns, 1);
    std::vector<double> expected(kRows, 0.0);
    for (std::size_t i = 0; i < numbers.size(); ++i) expected[i / static_cast<std::size_t>(columns)] += numbers[i];
    const Filled<float> x(numbers);
    const Filled<float> sums(std::vector<float>(kRows, -7.0F));
    write_row_sums(sums.vector(), x.input(kRows, columns));
    reference::require_near(sums.values(), expected, 1e-5);
  }
}

TEST_CASE("row_sums gives the bits of two row_sum") {
  constexpr std::int64_t kRows = 19;
  for (const std::int64_t columns : {0, 1, 13, 31, 32, 33, 64, 100}) {
    const Filled<float> x(reference::numbers(kRows * columns, 2));
    const Filled<float> together(std::vector<float>(2 * kRows, -7.0F)), apart(2 * kRows);
    write_two_sums(together.matrix(kRows, 2), apart.matrix(kRows, 2), x.input(kRows, columns));
    Device().fence();
    CHECK(reference::same_bits(together.values(), apart.values()));
  }
}

}  // namespace
}  // namespace kozero::kernels
