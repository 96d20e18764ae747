// SPDX-FileCopyrightText: The KoZeRO authors
// SPDX-License-Identifier: Apache-2.0
// float_formats.hpp: stored 16-bit floats <-> f32: exact to f32, rounded to nearest (ties to even) to 16 bits.
//   bf16: sign 1, exponent 8, fraction 7: the upper half of an f32
//   f16:  sign 1, exponent 5 (bias 15), fraction 10; subnormals are fraction * 2^-24      IEEE 754-2019, binary16
// Only integer operations are used, so denormals survive whatever the processor flushes.
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

inline bool is_finite(float value) { return (std::bit_cast<std::uint32_t>(value) & 0x7F800000U) != 0x7F800000U; }

/// `bits` without its lowest `count` (1 to 31), rounded to the nearest, ties to even.
inline std::uint32_t rounded_off(std::uint32_t bits, std::uint32_t count) {
  const std::uint32_t kept = bits >> count;
  const std::uint32_t rest = bits & ((1U << count) - 1U);
  const std::uint32_t half = 1U << (count - 1U);
  return kept + (rest > half || (rest == half && (kept & 1U) != 0) ? 1U : 0U);
}

/// A finite value beyond the format becomes infinity; a NaN stays one.
inline std::uint16_t bf16_of_float(float value) {
  const auto bits = std::bit_cast<std::uint32_t>(value);
  if ((bits & 0x7FFFFFFFU) > 0x7F800000U) return static_cast<std::uint16_t>(bits >> 16 | 0x40U);
  return static_cast<std::uint16_t>(rounded_off(bits, 16));
}

/// Overflow and NaN as in bf16_of_float.
inline std::uint16_t f16_of_float(float value) {
  const auto bits = std::bit_cast<std::uint32_t>(value);
  const std::uint32_t sign = (bits >> 16) & 0x8000U;
  const std::uint32_t magnitude = bits & 0x7FFFFFFFU;
  if (magnitude > 0x7F800000U) return static_cast<std::uint16_t>(sign | 0x7E00U | ((magnitude >> 13) & 0x3FFU));
  if (magnitude >= 0x47800000U) return static_cast<std::uint16_t>(sign | 0x7C00U);  // 2^16 and more
  const std::uint32_t exponent = magnitude >> 23;
  if (exponent > 112) return static_cast<std::uint16_t>(sign | (rounded_off(magnitude, 13) - (112U << 10)));
  if (exponent < 102) return static_cast<std::uint16_t>(sign);  // below half of the least, 2^-24
  const std::uint32_t fraction = (magnitude & 0x7FFFFFU) | 0x800000U;
  return static_cast<std::uint16_t>(sign | rounded_off(fraction, 126U - exponent));
}

/// The value as a double, also for a denormal, which a processor that flushes denormals would convert to zero.
inline double exact_double(float value) {
  const auto bits = std::bit_cast<std::uint32_t>(value);
  if ((bits & 0x7F800000U) != 0) return static_cast<double>(value);
  const double magnitude = static_cast<double>(bits & 0x7FFFFFU) * 0x1p-149;
  return (bits >> 31) != 0 ? -magnitude : magnitude;
}

}  // namespace kozero::io
