// SPDX-FileCopyrightText: The KoZeRO authors
// SPDX-License-Identifier: Apache-2.0
// test_sampling.cpp: the choice of tokens from logits, also beside transformers' choice (make_sampling.py).
#include <catch2/catch_test_macros.hpp>
#include <cmath>
#include <fstream>
#include <limits>
#include <map>
#include <nlohmann/json.hpp>
#include <vector>

#include <kozero/train/sampling.hpp>

using namespace kozero;
using train::pick_token;
using train::Sampling;

namespace {

const std::vector<float> kLogits = {0.0F, 2.0F, 1.0F, -1.0F, 2.0F};

/// The tokens picked by a fine grid of `uniform` values, with their shares.
std::map<Token, double> shares(const Sampling& sampling) {
  constexpr int kCount = 10000;
  std::map<Token, double> result;
  for (int i = 0; i < kCount; ++i) result[pick_token(kLogits, sampling, (i + 0.5) / kCount)] += 1.0 / kCount;
  return result;
}

}  // namespace

TEST_CASE("temperature 0 takes the likeliest, the lower id of equals") {
  CHECK(pick_token(kLogits, {.temperature = 0.0}, 0.99) == 1);
}

TEST_CASE("temperature 1 picks with softmax's probabilities") {
  const double sum = std::exp(0.0) + 2 * std::exp(2.0) + std::exp(1.0) + std::exp(-1.0);
  const auto picked = shares({});
  CHECK(picked.size() == 5);
  for (const auto& [token, share] : picked) {
    CHECK(std::abs(share - std::exp(static_cast<double>(kLogits[static_cast<std::size_t>(token)])) / sum) < 2e-4);
  }
}

TEST_CASE("a low temperature sharpens, a high one flattens") {
  CHECK(shares({.temperature = 0.5})[2] < shares({})[2]);
  CHECK(shares({.temperature = 5.0})[3] > shares({})[3]);
}

TEST_CASE("top-k keeps the k likeliest, top-p the smallest set that reaches p") {
  CHECK(shares({.top_k = 2}).size() == 2);
  CHECK(shares({.top_k = 3}).count(2) == 1);
  CHECK(shares({.top_p = 0.5}).size() == 2);  // 0.406 each for tokens 1 and 4
  CHECK(shares({.top_p = 0.85}).size() == 3);
  CHECK(shares({.top_p = 1e-9}).size() == 1);
}

TEST_CASE("min-p keeps the tokens near the likeliest, of those that top-p left") {
  CHECK(shares({.min_p = 0.99}).size() == 2);
  CHECK(shares({.min_p = 0.3}).size() == 3);  // e^-1 = 0.37
  CHECK(shares({.top_p = 0.5, .min_p = 0.3}).size() == 2);
  CHECK(shares({.temperature = 10.0, .min_p = 0.7}).size() == 5);
}

TEST_CASE("the penalty changes each token of the sequence once, and none without a logit") {
  std::vector<float> logits = kLogits;
  train::penalize(logits, std::vector<Token>{1, 3, 1, 5, -1}, 2.0);
  CHECK(logits == std::vector<float>{0.0F, 1.0F, 1.0F, -2.0F, 2.0F});
}

TEST_CASE("the tokens kept and their probabilities are those of transformers' generate") {
  const auto cases = nlohmann::json::parse(std::ifstream(KOZERO_TEST_DATA "/sampling.json"));
  CHECK(cases.size() == 33);
  for (const auto& one : cases) {
    const auto& options = one.at("options");
    CAPTURE(options.dump());
    const Sampling sampling{.temperature = options.value("temperature", 1.0),
                            .top_k = options.value("top_k", std::int64_t{0}),
                            .top_p = options.value("top_p", 1.0),
                            .min_p = options.value("min_p", 0.0)};
    auto logits = one.at("logits").get<std::vector<float>>();
    train::penalize(logits, one.at("sequence").get<std::vector<Token>>(), options.value("repetition_penalty", 1.0));
    const auto kept = train::candidates(logits, sampling);
    CHECK(kept.size() == one.at("tokens").size());
    for (const auto& [token, probability] : kept) {
      const double expected = one.at("tokens").value(std::to_string(token), 0.0);
      CHECK(std::abs(probability - expected) < 1e-6);
    }
  }
}

TEST_CASE("logits that are not numbers pick a token all the same, a number first") {
  constexpr float kNan = std::numeric_limits<float>::quiet_NaN();
  std::vector<float> logits(500, kNan);
  CHECK(pick_token(logits, {.top_k = 40}, 0.5) < 500);
  logits[77] = -3.0F;
  for (const double temperature : {0.0, 1.0}) CHECK(pick_token(logits, {.temperature = temperature}, 0.5) == 77);
}
