// SPDX-FileCopyrightText: The KoZeRO authors
// SPDX-License-Identifier: Apache-2.0
// vector_math.hpp: exponentials, the logistic function and a multiply-add of floats, without branches, so that loops
// over them become SIMD.
//   2^x = 2^n * 2^f       n = round(x),  |f| <= 1/2,  2^f = 1 + f P(f)
//   exp(x) = 2^n * 2^f    n = round(x / ln 2),  f = (x - n ln 2) / ln 2
// P is the polynomial of degree 5 with the least relative error, 2e-9. All roundings together stay within 2 units in
// the last place (tested against double). Overflow gives infinity, NaN stays NaN; results below 2^-125.5 are zero (of
// fast_exp2 on a GPU: subnormal). Rounding to n adds and subtracts 1.5 * 2^23, which -ffast-math would cancel, so no
// file may be compiled with it.
#pragma once
#include <cstdint>
#include <Kokkos_Core.hpp>

namespace kozero::kernels {

inline constexpr float kLog2E = 1.44269504088896341F;
inline constexpr float kRounder = 12582912.0F;  ///< 1.5 * 2^23: adding it leaves an integer in the low bits

/// a * b + c, rounded once if the build's target has the instruction, as every processor but old x86 has. Compilers
/// contract nothing else on a host (KozeroOptions.cmake), so that all processors give the same bits.
KOKKOS_INLINE_FUNCTION float multiply_add(float a, float b, float c) {
#if defined(__FMA__) || defined(__ARM_FEATURE_FMA) || defined(__FP_FAST_FMAF) || defined(__CUDA_ARCH__)
  return Kokkos::fma(a, b, c);
#else
  return a * b + c;
#endif
}

KOKKOS_INLINE_FUNCTION std::uint32_t smaller(std::uint32_t a, std::uint32_t b) { return a < b ? a : b; }
KOKKOS_INLINE_FUNCTION std::int32_t smaller(std::int32_t a, std::int32_t b) { return a < b ? a : b; }
KOKKOS_INLINE_FUNCTION std::int32_t larger(std::int32_t a, std::int32_t b) { return a > b ? a : b; }

/// Clamps x to [least, largest]; NaN stays NaN. Bits are compared, since float comparisons become branches to
/// constants, for each of which g++ duplicates the following code. Adding kNaNs makes +NaN negative integers, -NaN
/// small ones.
KOKKOS_INLINE_FUNCTION float clamped(float x, float least, float largest) {
  constexpr std::uint32_t kNaNs = 0x007FFFFFU;
  const auto moved = [](float value) { return Kokkos::bit_cast<std::uint32_t>(value) + kNaNs; };
  const auto low = smaller(static_cast<std::int32_t>(moved(x)), static_cast<std::int32_t>(moved(largest)));
  return Kokkos::bit_cast<float>(smaller(static_cast<std::uint32_t>(low), moved(least)) - kNaNs);
}

/// 2^(n + f) of f in [-1/2, 1/2] and n in [-126, 129], given by the bits of kRounder + 126 + n; zero if n is -126.
KOKKOS_INLINE_FUNCTION float scaled_exp2(float f, std::uint32_t shifted) {
  float twice = 2.0F * 1.5353309982463995e-4F;  // twice 2^f times 2^(n - 1), for 2^128 is not a float
  twice = multiply_add(twice, f, 2.0F * 1.3398938936252374e-3F);
  twice = multiply_add(twice, f, 2.0F * 9.618437978904595e-3F);
  twice = multiply_add(twice, f, 2.0F * 5.550332317113832e-2F);
  twice = multiply_add(twice, f, 2.0F * 0.24022647905266417F);
  twice = multiply_add(twice, f, 2.0F * 0.6931472029199522F);
  twice = multiply_add(twice, f, 2.0F);
  return twice * Kokkos::bit_cast<float>(shifted << 23);
}

/// 2^x for every finite float; an infinity gives NaN on a host. Cheaper than fast_exp, since the integer n is clamped
/// and not x. On a GPU, CUDA's exp2f uses an instruction and stays within 2 units in the last place.
KOKKOS_INLINE_FUNCTION float fast_exp2(float x) {
  KOKKOS_IF_ON_DEVICE((return Kokkos::exp2(x);))
  KOKKOS_IF_ON_HOST(
      (constexpr std::int32_t kLeast = 0x4B400000;  // kRounder's bits
       constexpr float kOrigin = kRounder + 126.0F; const float shifted = x + kOrigin;
       const std::int32_t n = larger(smaller(Kokkos::bit_cast<std::int32_t>(shifted), kLeast + 255), kLeast);
       return scaled_exp2(x - (shifted - kOrigin), static_cast<std::uint32_t>(n));))
}

/// exp(x) for every float.
KOKKOS_INLINE_FUNCTION float fast_exp(float x) {
  constexpr float kLn2High = 0.693145751953125F;  // the first 16 bits of ln 2: n * kLn2High is exact
  constexpr float kLn2Low = 1.42860682030941723e-6F;
  x = clamped(x, -87.5F, 89.0F);
  const float shifted = multiply_add(x, kLog2E, kRounder + 126.0F);
  const float n = shifted - (kRounder + 126.0F);
  const float rest = multiply_add(-n, kLn2Low, multiply_add(-n, kLn2High, x));
  return scaled_exp2(rest * kLog2E, Kokkos::bit_cast<std::uint32_t>(shifted));
}

/// 1 / (1 + exp(-x)).
KOKKOS_INLINE_FUNCTION float fast_sigmoid(float x) { return 1.0F / (1.0F + fast_exp(-x)); }

}  // namespace kozero::kernels
