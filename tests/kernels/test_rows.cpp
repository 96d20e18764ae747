// SPDX-FileCopyrightText: The KoZeRO authors
// SPDX-License-Identifier: Apache-2.0
#include <kozero/kernels/row_blocks.hpp>
#include <kozero/kernels/rows.hpp>

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
        const float sum = row_sum(team, columns, [&](std::int64_t c) { return row_of(x, n)[c]; });
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

TEST_CASE("a GPU's lanes share a row: every column is added and assigned by one of them") {
  for (const std::int64_t lanes : {1, 32, 256}) {
    for (const std::int64_t columns : {0, 1, 31, 33, 255, 256, 257, 768, 2100}) {
      std::vector<float> out(static_cast<std::size_t>(columns), -1.0F);
      std::vector<int> visits(out.size(), 0);
      float sum = 0.0F;
      for (std::int64_t lane = 0; lane < lanes; ++lane) {
        sum += share_sum(columns, lane, lanes, [](std::int64_t c) { return static_cast<float>(c); });
        assign_share(out.data(), columns, lane, lanes, [&](std::int64_t c) {
          ++visits[static_cast<std::size_t>(c)];
          return static_cast<float>(2 * c);
        });
      }
      CHECK(sum == static_cast<float>(columns * (columns - 1) / 2));
      CHECK(visits == std::vector<int>(out.size(), 1));
      for (std::size_t c = 0; c < out.size(); ++c) REQUIRE(out[c] == static_cast<float>(2 * c));
    }
  }
}

TEST_CASE("a GPU's threads share an array: every element is assigned by one of them") {
  for (const std::int64_t extent : {1, 255, 256, 2047, 2048, 2049, 5000}) {
    std::vector<float> out(static_cast<std::size_t>(extent), -1.0F);
    const auto value = [](std::int64_t i) { return static_cast<float>(3 * i); };
    const AssignedShare<float, decltype(value)> share{out.data(), value, extent};
    for (std::int64_t thread = 0; thread < share.threads(); ++thread) share(thread);
    for (std::size_t i = 0; i < out.size(); ++i)
      REQUIRE(out[i] == static_cast<float>(3 * static_cast<std::int64_t>(i)));
  }
}

TEST_CASE("a GPU's lane adds every row of its column once, in order") {
  const auto terms = [](std::int64_t n) { return RowTerms<2>{static_cast<float>(n), 1.0F}; };
  for (const std::int64_t rows : {0, 1, 7, 8, 9, 100}) {
    const RowTerms<2> sum = sum_of_column<2>({3, 3 + rows}, terms);
    CHECK(sum[0] == static_cast<float>(rows * (rows - 1) / 2 + 3 * rows));
    CHECK(sum[1] == static_cast<float>(rows));
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
