// SPDX-FileCopyrightText: The KoZeRO authors
// SPDX-License-Identifier: Apache-2.0
// test_fill.cpp: the elementwise operations against plain loops, for any extent and storage type.
#include "kernels/launch/fill.hpp"

#include "reference.hpp"

namespace kozero::kernels {
namespace {

using reference::Filled;

TEST_CASE("fill, scale, add_into and residual_add do what they say, for any extent") {
  for (const std::int64_t extent : {0, 1, 13, 5000}) {
    const std::vector<float> y = reference::numbers(extent, 1);
    std::vector<float> twice, sum, seven;
    for (const float value : y) {
      twice.push_back(2.0F * value);
      sum.push_back(2.0F * value + 7.0F);
      seven.push_back(7.0F);
    }
    const Filled<float> a(y), b(extent);
    fill(Device(), b.vector(), 7);
    CHECK(b.values() == seven);
    scale(Device(), a.vector(), 2.0F);
    CHECK(a.values() == twice);
    add_into(Device(), b.vector(), a.vector());
    CHECK(b.values() == sum);
    fill(Device(), b.vector(), 7.0F);
    residual_add(Device(), a.vector(), b.vector());
    CHECK(a.values() == sum);
  }
}

TEMPLATE_TEST_CASE("fill, scale and residual_add round to 16 bits once, convert each element", "", Bfloat16, Float16) {
  for (const std::int64_t extent : {0, 1, 13, 5000}) {
    const std::vector<float> y = reference::numbers(extent, 1);
    const std::vector<float> rounded = reference::stored_as<TestType>(y);
    std::vector<float> thrice, sum;
    for (const float value : rounded) thrice.push_back(3.0F * value);
    for (std::size_t i = 0; i < rounded.size(); ++i) sum.push_back(rounded[i] + 7.0F);
    const Filled<float> wide(y);
    const Filled<TestType> a(extent), b(extent);
    convert(Device(), a.vector(), wide.vector());
    CHECK(reference::same_bits(a.values(), rounded));
    convert(Device(), wide.vector(), a.vector());
    CHECK(reference::same_bits(wide.values(), rounded));
    fill(Device(), b.vector(), TestType(7.0F));
    residual_add(Device(), b.vector(), a.input());
    CHECK(reference::same_bits(b.values(), reference::stored_as<TestType>(sum)));
    scale(Device(), a.vector(), 3.0F);
    CHECK(reference::same_bits(a.values(), reference::stored_as<TestType>(thrice)));
  }
}

TEST_CASE("vectors of different extents are refused") {
  const Filled<float> a(3), b(4);
  CHECK_THROWS_AS(add_into(Device(), a.vector(), b.input()), Error);
  CHECK_THROWS_AS(residual_add(Device(), a.vector(), b.input()), Error);
  CHECK_THROWS_AS(convert(Device(), a.vector(), b.input()), Error);
}

}  // namespace
}  // namespace kozero::kernels
