// SPDX-FileCopyrightText: The KoZeRO authors
// SPDX-License-Identifier: Apache-2.0
// test_bfloat16.cpp: every 16-bit pattern through float and back; rounding against the nearest even, found by
// comparing.
#include <catch2/catch_test_macros.hpp>
#include <cmath>
#include <limits>

#include <kozero/core/precision.hpp>

using kozero::Bfloat16;

namespace {

float with_upper_half(std::uint32_t bits) { return Kokkos::bit_cast<float>(bits << 16); }

}  // namespace

TEST_CASE("each of the 65536 values is its own rounding, NaNs stay NaNs") {
  for (std::uint32_t bits = 0; bits < 65536; ++bits) {
    const float value = with_upper_half(bits);
    const Bfloat16 rounded(value);
    if (std::isnan(value)) {
      REQUIRE(std::isnan(static_cast<float>(rounded)));
    } else {
      REQUIRE(rounded.bits() == bits);
    }
  }
}

TEST_CASE("what lies between two values goes to the nearer, half way to the even one") {
  for (std::uint32_t bits = 0x0080; bits < 0x7F7F; bits += 7) {
    const float low = with_upper_half(bits);
    const float high = with_upper_half(bits + 1);
    const float middle = low + (high - low) / 2.0F;
    REQUIRE(Bfloat16(std::nextafter(middle, low)).bits() == bits);
    REQUIRE(Bfloat16(std::nextafter(middle, high)).bits() == bits + 1);
    REQUIRE(Bfloat16(middle).bits() == (bits % 2 == 0 ? bits : bits + 1));
    REQUIRE(Bfloat16(-middle).bits() == (Bfloat16(middle).bits() | 0x8000U));
  }
}

TEST_CASE("overflow is infinity, and a NaN of low bits alone is no infinity") {
  CHECK(std::isinf(static_cast<float>(Bfloat16(std::numeric_limits<float>::max()))));
  CHECK(std::isnan(static_cast<float>(Bfloat16(Kokkos::bit_cast<float>(0x7F800001U)))));
  CHECK(std::isnan(static_cast<float>(Bfloat16(Kokkos::bit_cast<float>(0xFFFFFFFFU)))));
}
