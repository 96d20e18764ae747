// SPDX-FileCopyrightText: The KoZeRO authors
// SPDX-License-Identifier: Apache-2.0
// float_formats.hpp: the stored 16-bit floats as f32, exactly, bit by bit.
//   bf16: sign 1, exponent 8, fraction 7: the upper half of an f32
//   f16:  sign 1, exponent 5 (bias 15), fraction 10; subnormals are fraction * 2^-24      IEEE 754-2019, binary16
// No floating-point operation is used, so denormals survive whatever the processor flushes.
#pragma once
#include <bit>
#include <cstdint>

namespace kozero::io {

inline float float_of_bf16(std::uint16_t bits) { return std::bit_cast<float>(static_cast<std::uint32_t>(bits) << 16); }

inline float float_of_f16(std::uint16_t bits) {
  const std::uint32_t sign = static_cast<std::uint32_t>(bits & 0x8000U) << 16;
  const std::uint32_t exponent = (bits >> 10) & 0x1FU;
  const std::uint32_t fraction = bits & 0x3FFU;
  if (exponent == 31) return std::bit_cast<float>(sign | 0x7F800000U | (fraction << 13));
  if (exponent != 0) return std::bit_cast<float>(sign | ((exponent + 112) << 23) | (fraction << 13));
  if (fraction == 0) return std::bit_cast<float>(sign);
  // A subnormal with its highest bit at position p is 2^(p - 24) times 1.rest.
  const auto position = static_cast<std::uint32_t>(std::bit_width(fraction)) - 1;
  const std::uint32_t rest = (fraction << (23 - position)) & 0x7FFFFFU;
  return std::bit_cast<float>(sign | ((position + 103) << 23) | rest);
}

}  // namespace kozero::io
