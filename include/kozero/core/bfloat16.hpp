// SPDX-FileCopyrightText: The KoZeRO authors
// SPDX-License-Identifier: Apache-2.0
// bfloat16.hpp: the upper half of a float, for storage: 8 bits of exponent, 8 of significand (one of them implied).
//   Bfloat16(x) rounds to nearest, ties to even, |error| <= 2^-8 |x|       static_cast<float>(b) is exact
// Every NaN becomes one NaN, an overflow infinity. There is no arithmetic: kernels compute in float. Both conversions
// are integer operations without a branch, so that loops over them become SIMD; a GPU rounds by its own instruction.
#pragma once
#include <cstdint>
#include <Kokkos_Core.hpp>

namespace kozero {

class Bfloat16 {
 public:
  Bfloat16() = default;
  KOKKOS_INLINE_FUNCTION explicit Bfloat16(float value) {
    KOKKOS_IF_ON_HOST((bits_ = rounded(value);))
    KOKKOS_IF_ON_DEVICE((bits_ = Kokkos::bit_cast<std::uint16_t>(Kokkos::Experimental::cast_to_bhalf(value));))
  }
  KOKKOS_INLINE_FUNCTION explicit operator float() const {
    return Kokkos::bit_cast<float>(static_cast<std::uint32_t>(bits_) << 16);
  }

  [[nodiscard]] KOKKOS_INLINE_FUNCTION std::uint16_t bits() const { return bits_; }

 private:
  KOKKOS_INLINE_FUNCTION static std::uint16_t rounded(float value) {
    constexpr std::uint32_t kNaN = 0x7FC00000U;
    const auto bits = Kokkos::bit_cast<std::uint32_t>(value);
    const std::uint32_t nearest = bits + 0x7FFFU + ((bits >> 16) & 1U);
    return static_cast<std::uint16_t>((value != value ? kNaN : nearest) >> 16);
  }

  std::uint16_t bits_;
};

static_assert(sizeof(Bfloat16) == 2 && alignof(Bfloat16) == 2, "arrays of it are arrays of 16-bit words");

}  // namespace kozero
