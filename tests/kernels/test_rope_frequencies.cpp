// SPDX-FileCopyrightText: The KoZeRO authors
// SPDX-License-Identifier: Apache-2.0
// test_rope_frequencies.cpp: frequencies against the published rule, in wavelengths and with its three cases.
#include <cmath>

#include "kernels/ops/rope.hpp"

#include "reference.hpp"

namespace kozero::kernels {
namespace {

constexpr double kPi = 3.14159265358979323846;
const RopeFrequencies kLlama32{.theta = 500000.0, .factor = 32.0};

double plain_frequency(double theta, std::int64_t i, std::int64_t half) {
  return std::pow(theta, -2.0 * static_cast<double>(i) / (2.0 * static_cast<double>(half)));
}

/// Llama 3.1's rule as published: by the wavelength.
double by_wavelength(const RopeFrequencies& rope, std::int64_t i, std::int64_t half) {
  const double frequency = plain_frequency(rope.theta, i, half);
  const double wavelength = 2.0 * kPi / frequency;
  if (wavelength < rope.original_seq / rope.high_freq_factor) return frequency;
  if (wavelength > rope.original_seq / rope.low_freq_factor) return frequency / rope.factor;
  const double smooth =
      (rope.original_seq / wavelength - rope.low_freq_factor) / (rope.high_freq_factor - rope.low_freq_factor);
  return (1.0 - smooth) * frequency / rope.factor + smooth * frequency;
}

TEST_CASE("stretched frequencies follow the published rule, pairs of each of its three cases among them") {
  const RopeFrequencies other{
      .theta = 1e4, .factor = 5.5, .low_freq_factor = 0.5, .high_freq_factor = 1.5, .original_seq = 100.0};
  for (const auto& rope : {kLlama32, other}) {
    int kept = 0, slowed = 0;
    for (const std::int64_t half : {32, 13}) {
      for (std::int64_t i = 0; i < half; ++i) {
        const double frequency = rope(i, half);
        CHECK(std::abs(frequency / by_wavelength(rope, i, half) - 1.0) < 1e-14);
        kept += frequency == plain_frequency(rope.theta, i, half) ? 1 : 0;
        slowed += std::abs(frequency * rope.factor / plain_frequency(rope.theta, i, half) - 1.0) < 1e-14 ? 1 : 0;
      }
    }
    CHECK(kept > 5);
    CHECK(slowed > 5);
    CHECK(kept + slowed < 32 + 13);
  }
}

TEST_CASE("factor 1 stretches nothing, bit for bit") {
  const RopeFrequencies none{.theta = 500000.0, .original_seq = 64.0};
  for (std::int64_t i = 0; i < 13; ++i) CHECK(none(i, 13) == std::pow(500000.0, -static_cast<double>(i) / 13.0));
}

}  // namespace
}  // namespace kozero::kernels
