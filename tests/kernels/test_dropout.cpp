// SPDX-FileCopyrightText: The KoZeRO authors
// SPDX-License-Identifier: Apache-2.0
// test_dropout.cpp: dropout against its random words, its rate, and its independence of the batch.
#include "kernels/ops/dropout.hpp"

#include "reference.hpp"

namespace kozero::kernels {
namespace {

using reference::Filled;

constexpr std::uint64_t kKey = 77;

template <class T = float>
std::vector<float> dropped(const std::vector<float>& x, const std::vector<std::uint64_t>& samples,
                           std::int64_t positions, std::int64_t channels, float p) {
  const Filled<T> values(x);
  const Filled<std::uint64_t> ids(samples);
  const auto rows = static_cast<std::int64_t>(samples.size()) * positions;
  dropout(Device(), values.matrix(rows, channels), ids.input(), positions, p, kKey);
  return values.values();
}

TEMPLATE_LIST_TEST_CASE("dropout keeps what its random word says and scales it", "", reference::StoredTypes) {
  const std::vector<std::uint64_t> samples = {5, 1ULL << 40};
  const std::vector<float> x = reference::numbers<TestType>(2 * 7 * 13, 1);
  std::vector<float> expected;
  for (std::size_t i = 0; i < x.size(); ++i) {
    const Words4 words = philox(kKey, counter_of(i % (7 * 13), samples[i / (7 * 13)]));
    expected.push_back(uniform_of(words.x[0]) >= 0.25F ? x[i] * (1.0F / 0.75F) : 0.0F);
  }
  const auto got = dropped<TestType>(x, samples, 7, 13, 0.25F);
  CHECK(reference::same_bits(got, reference::stored_as<TestType>(expected)));
}

TEST_CASE("a sample's dropout does not depend on the batch it is in") {
  const std::vector<float> ones(7 * 13, 1.0F);
  const std::vector<float> both = dropped(std::vector<float>(2 * 7 * 13, 1.0F), {3, 9}, 7, 13, 0.5F);
  CHECK(reference::same_bits({both.begin() + 7 * 13, both.end()}, dropped(ones, {9}, 7, 13, 0.5F)));
  CHECK_FALSE(reference::same_bits({both.begin(), both.begin() + 7 * 13}, dropped(ones, {9}, 7, 13, 0.5F)));
}

TEST_CASE("dropout drops about p and keeps the mean") {
  const std::vector<float> y = dropped(std::vector<float>(100 * 1000, 1.0F), {0}, 100, 1000, 0.3F);
  double sum = 0.0;
  int zeros = 0;
  for (const float value : y) {
    sum += value;
    zeros += value == 0.0F ? 1 : 0;
  }
  CHECK(std::abs(zeros / 1e5 - 0.3) < 0.01);
  CHECK(std::abs(sum / 1e5 - 1.0) < 0.01);
}

TEST_CASE("dropout with p = 0 or no samples changes nothing, p = 1 is refused") {
  const std::vector<float> x = reference::numbers(7 * 13, 1);
  CHECK(reference::same_bits(dropped(x, {1}, 7, 13, 0.0F), x));
  CHECK(dropped({}, {}, 7, 13, 0.5F).empty());
  CHECK_THROWS_AS(dropped(x, {1}, 7, 13, 1.0F), Error);
}

}  // namespace
}  // namespace kozero::kernels
