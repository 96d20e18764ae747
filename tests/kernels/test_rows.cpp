// SPDX-FileCopyrightText: The KoZeRO authors
// SPDX-License-Identifier: Apache-2.0
// test_rows.cpp: each element and each column of a row is visited once.
#include "kernels/launch/for_each.hpp"

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

}  // namespace
}  // namespace kozero::kernels
