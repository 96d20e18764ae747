// SPDX-FileCopyrightText: The KoZeRO authors
// SPDX-License-Identifier: Apache-2.0
// vector_math.hpp: exponential, tanh and logistic function of a float, without branches, so that loops over them become
// SIMD.
//   exp(x) = 2^n * exp(r)     n = round(x / ln 2),  r = x - n * ln 2,  |r| <= ln(2) / 2,  exp(r) by its series to r^7
// The series' remainder is below 6e-9 relative; all roundings together stay within 2 units in the last place (tested
// against double). Overflow gives infinity, underflow goes through the denormals to zero, NaN stays NaN. The rounding
// adds and subtracts 1.5 * 2^23, which -ffast-math would cancel: it must not be used on any file.
#pragma once
#include <cstdint>
#include <Kokkos_Core.hpp>

namespace kozero::kernels {

/// x = n ln 2 + r, taken apart: the integer, and exp(r) - 1.
struct SplitExponent {
  std::int32_t power;  ///< n
  float minus_one;     ///< exp(r) - 1
};

/// Splits x in [-150 ln 2, 150 ln 2].
KOKKOS_INLINE_FUNCTION SplitExponent split_exponent(float x) {
  constexpr float kRounder = 12582912.0F;            // 1.5 * 2^23: adding it leaves an integer in the low bits
  constexpr std::int32_t kRounderBits = 0x4B400000;  // its bit pattern
  constexpr float kLn2High = 0.693145751953125F;     // the first 16 bits of ln 2: n * kLn2High is exact
  constexpr float kLn2Low = 1.42860682030941723e-6F;
  const float shifted = x * 1.44269504088896341F + kRounder;
  const float n = shifted - kRounder;
  const float r = (x - n * kLn2High) - n * kLn2Low;
  float series = 1.0F / 5040.0F;
  series = series * r + 1.0F / 720.0F;
  series = series * r + 1.0F / 120.0F;
  series = series * r + 1.0F / 24.0F;
  series = series * r + 1.0F / 6.0F;
  series = series * r + 0.5F;
  return {Kokkos::bit_cast<std::int32_t>(shifted) - kRounderBits, series * (r * r) + r};
}

/// 2^n for n in [-126, 127].
KOKKOS_INLINE_FUNCTION float power_of_two(std::int32_t n) {
  return Kokkos::bit_cast<float>(static_cast<std::uint32_t>(n + 127) << 23);
}

/// exp(x) for every float.
KOKKOS_INLINE_FUNCTION float fast_exp(float x) {
  x = x > 89.0F ? 89.0F : x;
  x = x < -104.0F ? -104.0F : x;
  const SplitExponent split = split_exponent(x);
  const std::int32_t half = split.power >> 1;  // two factors: 2^n itself may be no float
  return (1.0F + split.minus_one) * power_of_two(half) * power_of_two(split.power - half);
}

/// tanh(x) = m / (m + 2), m = exp(2|x|) - 1, with the sign of x; accurate around 0 too.
KOKKOS_INLINE_FUNCTION float fast_tanh(float x) {
  const float magnitude = Kokkos::fabs(x);
  const SplitExponent split = split_exponent(magnitude > 10.0F ? 20.0F : 2.0F * magnitude);
  const float scale = power_of_two(split.power);
  const float m = scale * split.minus_one + (scale - 1.0F);
  return Kokkos::copysign(m / (m + 2.0F), x);
}

/// 1 / (1 + exp(-x)).
KOKKOS_INLINE_FUNCTION float fast_sigmoid(float x) { return 1.0F / (1.0F + fast_exp(-x)); }

}  // namespace kozero::kernels
