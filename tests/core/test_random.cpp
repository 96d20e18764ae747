// SPDX-FileCopyrightText: The KoZeRO authors
// SPDX-License-Identifier: Apache-2.0
// test_random.cpp: Philox's published test vectors, permutations, and the distribution of normal values.
#include <catch2/catch_approx.hpp>
#include <catch2/catch_test_macros.hpp>
#include <cmath>
#include <vector>

#include <kozero/core/random.hpp>

using namespace kozero;

TEST_CASE("Philox4x32-10 gives the published known answers") {
  // Random123's kat_vectors: counter and key all zero, all ones, and digits of pi.
  const auto check = [](Words4 counter, std::uint64_t key, Words4 expected) {
    const Words4 words = philox(key, counter);
    for (int i = 0; i < 4; ++i) CHECK(words.x[i] == expected.x[i]);
  };
  check({{0, 0, 0, 0}}, 0, {{0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8}});
  check({{~0U, ~0U, ~0U, ~0U}}, ~0ULL, {{0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd}});
  check({{0x243f6a88, 0x85a308d3, 0x13198a2e, 0x03707344}}, 0x299f31d0a4093822ULL,
        {{0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1}});
}

TEST_CASE("a permutation visits each element once, at every extent") {
  for (const std::uint64_t extent : {1, 2, 3, 4, 5, 16, 17, 100, 255, 1000}) {
    std::vector<int> visits(extent, 0);
    for (std::uint64_t p = 0; p < extent; ++p) ++visits.at(permuted(99, p, extent));
    CHECK(visits == std::vector<int>(extent, 1));
  }
}

TEST_CASE("permutations of different keys differ and move most elements") {
  int fixed = 0, equal = 0;
  for (std::uint64_t p = 0; p < 1000; ++p) {
    fixed += permuted(1, p, 1000) == p;
    equal += permuted(1, p, 1000) == permuted(2, p, 1000);
  }
  CHECK(fixed < 10);
  CHECK(equal < 10);
}

TEST_CASE("normal values have mean 0, variance 1 and a normal tail") {
  const auto key = stream_key(1, "test");
  double sum = 0, squares = 0;
  int beyond_two = 0;
  constexpr int kCount = 100000;
  for (std::uint64_t i = 0; i < kCount; ++i) {
    const double z = normal_at(key, i);
    sum += z;
    squares += z * z;
    beyond_two += std::abs(z) > 2.0;
  }
  CHECK(std::abs(sum / kCount) < 0.015);
  CHECK(squares / kCount == Catch::Approx(1.0).margin(0.02));
  CHECK(beyond_two / static_cast<double>(kCount) == Catch::Approx(0.0455).margin(0.003));
}

TEST_CASE("each shard of a normal parameter has the values of its elements, at odd ends too") {
  const Parameter parameter{.name = "w", .shape = {}};
  for (const std::int64_t first : {0, 1, 6, 7}) {
    for (const std::size_t extent : {0, 1, 2, 5, 8}) {
      std::vector<float> values(extent, 9.0F);
      fill_initial(parameter, 3, first, HostVector<float>(values.data(), extent));
      for (std::size_t i = 0; i < extent; ++i) {
        const double normal = normal_at(stream_key(3, "w"), static_cast<std::uint64_t>(first) + i);
        CHECK(values[i] == static_cast<float>(parameter.deviation * normal));
      }
    }
  }
}

TEST_CASE("streams of different names and seeds are unrelated") {
  CHECK(stream_key(1, "a") != stream_key(1, "b"));
  CHECK(stream_key(1, "a") != stream_key(2, "a"));
}
