// SPDX-FileCopyrightText: The KoZeRO authors
// SPDX-License-Identifier: Apache-2.0
#include <kozero/kernels/fill.hpp>
#include <kozero/kernels/residual.hpp>

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

TEST_CASE("vectors of different extents are refused") {
  const Filled<float> a(3), b(4);
  CHECK_THROWS_AS(add_into(Device(), a.vector(), b.input()), Error);
  CHECK_THROWS_AS(residual_add(Device(), a.vector(), b.input()), Error);
}

}  // namespace
}  // namespace kozero::kernels
