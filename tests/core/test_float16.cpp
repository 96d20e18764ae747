// SPDX-FileCopyrightText: The KoZeRO authors
// SPDX-License-Identifier: Apache-2.0
// test_float16.cpp: every 16-bit pattern against the definition of binary16; rounding against the nearest of two
// neighbors, found in double.
#include <catch2/catch_test_macros.hpp>
#include <cmath>
#include <limits>

#include <kozero/core/precision.hpp>

using kozero::Float16;

namespace {

constexpr std::uint32_t kInfinity = 0x7C00U;

/// (-1)^sign 2^(e - 15) (1 + f / 1024), or 2^-14 f / 1024 if e = 0: exact in double.
double defined(std::uint32_t bits) {
  const auto exponent = static_cast<int>((bits >> 10) & 31U);
  const auto fraction = static_cast<double>(bits & 1023U) / 1024.0;
  const double magnitude = exponent == 0 ? std::ldexp(fraction, -14) : std::ldexp(1.0 + fraction, exponent - 15);
  return (bits & 0x8000U) != 0 ? -magnitude : magnitude;
}

bool is_nan(std::uint32_t bits) { return (bits & 0x7FFFU) > kInfinity; }

Float16 of_bits(std::uint32_t bits) { return Kokkos::bit_cast<Float16>(static_cast<std::uint16_t>(bits)); }

}  // namespace

TEST_CASE("each of the 65536 values is what its bits say, and its own rounding") {
  for (std::uint32_t bits = 0; bits < 65536; ++bits) {
    const auto value = static_cast<float>(of_bits(bits));
    if (is_nan(bits)) {
      REQUIRE(std::isnan(value));
      REQUIRE(is_nan(Float16(value).bits()));
    } else {
      if ((bits & 0x7FFFU) == kInfinity) {
        REQUIRE(std::isinf(value));
      } else {
        REQUIRE(static_cast<double>(value) == defined(bits));
      }
      REQUIRE(std::signbit(value) == (bits > 0x7FFFU));
      REQUIRE(Float16(value).bits() == bits);
    }
  }
}

TEST_CASE("what lies between two values goes to the nearer, half way to the even one, subnormals too") {
  for (std::uint32_t bits = 0; bits < kInfinity; ++bits) {
    const auto low = static_cast<float>(defined(bits));
    const double high = bits + 1 < kInfinity ? defined(bits + 1) : 65536.0;
    const auto middle = static_cast<float>((static_cast<double>(low) + high) / 2.0);  // exact: it has 12 bits
    const std::uint32_t even = bits % 2 == 0 ? bits : bits + 1;
    REQUIRE(Float16(std::nextafter(middle, 0.0F)).bits() == bits);
    REQUIRE(Float16(middle).bits() == even);
    REQUIRE(Float16(std::nextafter(middle, 1e6F)).bits() == bits + 1);
    REQUIRE(Float16(-middle).bits() == (even | 0x8000U));
  }
}

TEST_CASE("from 65520 on it is infinity, below half of the least subnormal zero, and the sign stays") {
  CHECK(Float16(65504.0F).bits() == 0x7BFFU);
  CHECK(Float16(std::nextafter(65520.0F, 0.0F)).bits() == 0x7BFFU);
  CHECK(Float16(65520.0F).bits() == kInfinity);
  CHECK(Float16(-std::numeric_limits<float>::max()).bits() == (kInfinity | 0x8000U));
  CHECK(Float16(std::numeric_limits<float>::infinity()).bits() == kInfinity);
  CHECK(Float16(0x1p-25F).bits() == 0);
  CHECK(Float16(0x1.8p-25F).bits() == 1);
  CHECK(Float16(std::numeric_limits<float>::denorm_min()).bits() == 0);
  CHECK(Float16(-0.0F).bits() == 0x8000U);
}

TEST_CASE("a NaN stays one, of low bits alone too") {
  for (const std::uint32_t bits : {0x7F800001U, 0x7FC00000U, 0xFFFFFFFFU, 0xFF800001U}) {
    const std::uint32_t rounded = Float16(Kokkos::bit_cast<float>(bits)).bits();
    CHECK(is_nan(rounded));
    CHECK(rounded >> 15 == bits >> 31);
  }
}
