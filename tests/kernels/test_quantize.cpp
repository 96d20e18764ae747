// SPDX-FileCopyrightText: The KoZeRO authors
// SPDX-License-Identifier: Apache-2.0
// test_quantize.cpp: blocks of 64 weights in 8 and 4 bits: nearest values, error bounds, zeros, and decoded types.
#include <catch2/catch_test_macros.hpp>
#include <cmath>
#include <vector>

#include <kozero/core/precision.hpp>
#include <kozero/core/random.hpp>

#include "kernels/ops/quantize.hpp"

namespace kozero::tests {
namespace {

using kernels::BlockCode;

std::vector<float> noise(std::int64_t blocks, std::uint64_t key) {
  std::vector<float> values;
  for (std::int64_t i = 0; i < 64 * blocks; ++i) {
    const double size = std::ldexp(1.0, static_cast<int>(i / 64 % 40) - 20);  // blocks of many magnitudes
    values.push_back(static_cast<float>(size * normal_at(key, static_cast<std::uint64_t>(i))));
  }
  return values;
}

template <class T>
std::vector<float> decoded(BlockCode code, const std::vector<float>& weights) {
  const std::int64_t blocks = std::ssize(weights) / 64;
  std::vector<std::uint32_t> words(static_cast<std::size_t>(blocks * kernels::words_of_block(code)));
  for (std::int64_t b = 0; b < blocks; ++b) {
    kernels::encode_block(code, weights.data() + 64 * b, words.data() + b * kernels::words_of_block(code));
  }
  const Kokkos::View<std::uint32_t*, DeviceMemory> in("words", words.size());
  const Kokkos::View<T*, DeviceMemory> out("weights", weights.size());
  Kokkos::deep_copy(Vector<std::uint32_t>(in.data(), in.extent(0)),
                    HostVector<const std::uint32_t>(words.data(), words.size()));
  kernels::decode_blocks(Device(), Vector<T>(out.data(), out.extent(0)),
                         Vector<const std::uint32_t>(in.data(), in.extent(0)), code);
  const auto host = Kokkos::create_mirror_view_and_copy(Kokkos::HostSpace(), out);
  std::vector<float> values;
  for (std::size_t i = 0; i < host.extent(0); ++i) values.push_back(static_cast<float>(host(i)));
  return values;
}

float largest_of(const std::vector<float>& weights, std::size_t block) {
  float largest = 0.0F;
  for (std::size_t i = 64 * block; i < 64 * block + 64; ++i) largest = std::max(largest, std::abs(weights[i]));
  return largest;
}

}  // namespace

TEST_CASE("quantized blocks: no value is farther from its weight than any value that the block could have") {
  const std::vector<float> weights = noise(80, 7);
  for (const BlockCode code : {BlockCode::int8, BlockCode::nf4}) {
    const std::vector<float> values = decoded<float>(code, weights);
    for (std::size_t i = 0; i < weights.size(); ++i) {
      const float largest = largest_of(weights, i / 64);
      const auto error = [&](float value) { return std::abs(value - weights[i]); };
      const float rounding = 4e-7F * largest;
      CHECK(error(values[i]) <= (code == BlockCode::int8 ? largest / 254.0F : 0.152F * largest) + rounding);
      if (code == BlockCode::int8) continue;
      for (const float other : kernels::kNormalFloat) CHECK(error(values[i]) <= error(other * largest) + rounding);
    }
  }
}

TEST_CASE("quantized blocks keep zeros, the largest weight, and blocks of zeros") {
  std::vector<float> weights = noise(2, 3);
  for (std::size_t i = 64; i < 128; ++i) weights[i] = 0.0F;
  weights[5] = 0.0F;
  weights[9] = -6.0F;
  for (const BlockCode code : {BlockCode::raw, BlockCode::int8, BlockCode::nf4}) {
    const std::vector<float> values = decoded<float>(code, weights);
    CHECK(values[5] == 0.0F);
    CHECK(std::abs(values[9] + 6.0F) <= 1e-6F);
    for (std::size_t i = 64; i < 128; ++i) CHECK(values[i] == 0.0F);
    if (code == BlockCode::raw) CHECK(values == weights);
  }
}

TEST_CASE("NF4's code book: 16 values in order, 8 of them above zero, halves of quantiles of a normal distribution") {
  for (std::size_t i = 1; i < 16; ++i) CHECK(kernels::kNormalFloat[i] > kernels::kNormalFloat[i - 1]);
  CHECK(kernels::kNormalFloat[7] == 0.0F);
  for (std::uint32_t code = 0; code < 16; ++code) {
    CHECK(kernels::normal_float_code(kernels::kNormalFloat[code]) == code);
  }
  CHECK(kernels::normal_float_code(-0.8480965F) == 0);  // half-way between the two lowest values is -0.84809640
  CHECK(kernels::normal_float_code(-0.8480963F) == 1);
  CHECK(kernels::words_of_block(BlockCode::nf4) == 9);
  CHECK(kernels::words_of_block(BlockCode::int8) == 17);
}

TEST_CASE("blocks decoded to 16 bits are the rounded values of those decoded to floats") {
  const std::vector<float> weights = noise(4, 11);
  for (const BlockCode code : {BlockCode::raw, BlockCode::int8, BlockCode::nf4}) {
    const std::vector<float> exact = decoded<float>(code, weights);
    const std::vector<float> rounded = decoded<Bfloat16>(code, weights);
    for (std::size_t i = 0; i < exact.size(); ++i) CHECK(rounded[i] == static_cast<float>(Bfloat16(exact[i])));
  }
}

}  // namespace kozero::tests
