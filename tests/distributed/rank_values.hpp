// SPDX-FileCopyrightText: The KoZeRO authors
// SPDX-License-Identifier: Apache-2.0
// rank_values.hpp: the addend of each rank, and the sum in rank order.
//   sum_of_ranks(n, i) = ((value_of(0, i) + value_of(1, i)) + ...) + value_of(n - 1, i)
#pragma once
#include <cmath>
#include <cstdint>
#include <cstring>
#include <vector>

namespace kozero::test {

// Values of many magnitudes and both signs, so that the bits of a sum depend on its order.
inline std::uint32_t scrambled(std::uint32_t x) {
  x = (x ^ (x >> 15)) * 2246822519U;
  x = (x ^ (x >> 13)) * 3266489917U;
  return x ^ (x >> 16);
}

inline float value_of(int rank, std::int64_t i) {
  const std::uint32_t mantissa = scrambled(static_cast<std::uint32_t>(i * 64 + rank));
  const std::uint32_t exponent = scrambled(mantissa);
  const float magnitude = std::ldexp(static_cast<float>(mantissa >> 8), static_cast<int>(exponent % 16));
  return exponent % 3 == 0 ? -magnitude : magnitude;
}

inline std::vector<float> addend_of(int rank, std::int64_t extent) {
  std::vector<float> values(static_cast<std::size_t>(extent));
  for (std::int64_t i = 0; i < extent; ++i) values[static_cast<std::size_t>(i)] = value_of(rank, i);
  return values;
}

/// The sum may also begin with rank `first` and go around: value_of(first, i) + value_of(first + 1, i) + ...
inline float sum_of_ranks(int n, std::int64_t i, int first = 0) {
  float sum = value_of(first, i);
  for (int r = 1; r < n; ++r) sum += value_of((first + r) % n, i);
  return sum;
}

inline bool same_bits(float a, float b) { return std::memcmp(&a, &b, sizeof(float)) == 0; }

}  // namespace kozero::test
