// SPDX-FileCopyrightText: The KoZeRO authors
// SPDX-License-Identifier: Apache-2.0
// test_stored_run.cpp: results stored in 16 bits are rounded like the type, for every extent around a chunk or pack.
#include <limits>

#include "kernels/launch/fill.hpp"
#include "kernels/launch/for_each.hpp"

#include "reference.hpp"

namespace kozero::kernels {
namespace {

using reference::Filled;

/// Floats of every magnitude and sign, including ties between two 16-bit neighbors and the largest float.
std::vector<float> many_floats(std::int64_t extent) {
  std::vector<float> values = reference::numbers(extent, 6);
  for (std::size_t i = 0; i < values.size(); ++i) {
    const auto power = static_cast<int>(i % 240) - 120;
    values[i] =
        i % 3 == 0 ? std::ldexp(1.0F + static_cast<float>(i % 512) / 256.0F, power) : std::ldexp(values[i], power);
  }
  if (!values.empty()) values.back() = std::numeric_limits<float>::max();
  return values;
}

TEMPLATE_TEST_CASE("a run of every extent is rounded as the type rounds, and nothing after it is touched", "", Bfloat16,
                   Float16) {
  for (const std::int64_t extent : {0, 1, 13, 15, 16, 17, 127, 128, 129, 4096, 4111}) {
    const std::vector<float> values = many_floats(extent);
    const Filled<float> in(values);
    const Filled<TestType> out(std::vector<float>(static_cast<std::size_t>(extent) + 1, 7.0F));
    convert(Device(), slice(out.vector(), 0, extent), in.input());
    std::vector<float> expected = reference::stored_as<TestType>(values);
    expected.push_back(7.0F);
    CHECK(reference::same_bits(out.values(), expected));
  }
}

TEMPLATE_TEST_CASE("a NaN and an infinity are stored in 16 bits", "", Bfloat16, Float16) {
  const float infinity = std::numeric_limits<float>::infinity();
  const float nan = std::numeric_limits<float>::quiet_NaN();
  const Filled<float> in(std::vector<float>{nan, -nan, infinity, -infinity});
  const Filled<TestType> out(4);
  convert(Device(), out.vector(), in.input());
  const std::vector<float> got = out.values();
  CHECK(std::isnan(got[0]));
  CHECK(std::isnan(got[1]));
  CHECK(got[2] == infinity);
  CHECK(got[3] == -infinity);
}

/// a = a + b, b = a - b, one row at a time, in place.
template <class T>
void sum_and_difference(Matrix<T> a, Matrix<T> b) {
  const auto columns = static_cast<std::int64_t>(a.extent(1));
  for_each_row(
      Device(), "test::sum_and_difference", static_cast<std::int64_t>(a.extent(0)),
      KOKKOS_LAMBDA(const RowTeam<Device>& team, std::int64_t n) {
        T* const first = row_of(a, n);
        T* const second = row_of(b, n);
        const auto both = [](float x, float y) { return TwoValues{x + y, x - y}; };
        assign_rows(team, first, second, columns, both, first, second);
      });
}

/// The same in packs by a row's worker, as in assign_rows on a GPU.
template <class T>
void sum_and_difference_by_packs(Matrix<T> a, Matrix<T> b) {
  for_each_row(
      Device(), "test::pairs", static_cast<std::int64_t>(a.extent(0)),
      KOKKOS_LAMBDA(const RowTeam<Device>& team, std::int64_t n) {
        T* const first = row_of(a, n);
        T* const second = row_of(b, n);
        const auto both = [](float x, float y) { return TwoValues{x + y, x - y}; };
        for_each_pack<kPackOf<T>>(
            team, static_cast<std::int64_t>(a.extent(1)), is_aligned(first, second), [=](auto count, std::int64_t c) {
              constexpr int kCount = decltype(count)::value;
              assign_two(first + c, second + c, both, load_pack<kCount>(first + c), load_pack<kCount>(second + c));
            });
      });
  Device().fence();
}

TEMPLATE_LIST_TEST_CASE("assign_rows stores both values, in place and for widths around a chunk or pack", "",
                        reference::StoredTypes) {
  for (const auto kernel : {sum_and_difference<TestType>, sum_and_difference_by_packs<TestType>}) {
    for (const std::int64_t columns : {1, 8, 13, 128, 300}) {
      const std::vector<float> a = reference::numbers<TestType>(3 * columns, 1);
      const std::vector<float> b = reference::numbers<TestType>(3 * columns, 2);
      const Filled<TestType> first(a), second(b);
      kernel(first.matrix(3, columns), second.matrix(3, columns));
      std::vector<float> sums, differences;
      for (std::size_t i = 0; i < a.size(); ++i) {
        sums.push_back(a[i] + b[i]);
        differences.push_back(a[i] - b[i]);
      }
      CHECK(reference::same_bits(first.values(), reference::stored_as<TestType>(sums)));
      CHECK(reference::same_bits(second.values(), reference::stored_as<TestType>(differences)));
    }
  }
}

}  // namespace
}  // namespace kozero::kernels
