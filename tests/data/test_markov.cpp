// SPDX-FileCopyrightText: The KoZeRO authors
// SPDX-License-Identifier: Apache-2.0
// test_markov.cpp: probabilities, entropy rate and samples of the Markov source.
#include <catch2/catch_test_macros.hpp>
#include <catch2/matchers/catch_matchers_floating_point.hpp>

#include <array>
#include <cmath>
#include <map>

#include <support/thrown.hpp>
#include "src/data/markov.hpp"

namespace kozero::data {

using Catch::Matchers::WithinAbs;
using Catch::Matchers::WithinRel;
using tests::thrown_by;

namespace {

/// The entropy of the next token given the current token, from counts.
double empirical_rate(const MarkovSource& source, std::uint64_t samples, std::size_t length) {
  std::map<std::pair<Token, Token>, double> pairs;
  std::map<Token, double> firsts;
  std::vector<Token> tokens(length);
  double total = 0.0;
  for (std::uint64_t index = 0; index < samples; ++index) {
    source.sample(index, tokens);
    for (std::size_t i = 0; i + 1 < length; ++i) {
      pairs[{tokens[i], tokens[i + 1]}] += 1.0;
      firsts[tokens[i]] += 1.0;
      total += 1.0;
    }
  }
  double rate = 0.0;
  for (const auto& [pair, count] : pairs) rate -= count / total * std::log(count / firsts[pair.first]);
  return rate;
}

}  // namespace

TEST_CASE("the entropy rate is that of the tokens") {
  for (const std::int64_t vocab : {2, 3, 17, 64}) {
    const MarkovSource source(vocab, 5);
    CHECK(source.entropy_rate() > 0.0);
    CHECK(source.entropy_rate() < std::log(std::min<double>(8.0, static_cast<double>(vocab))));
    CHECK_THAT(empirical_rate(source, 3000, 100),
               WithinRel(source.entropy_rate(), 0.01) || WithinAbs(source.entropy_rate(), 0.005));
  }
}

TEST_CASE("every position has the stationary distribution") {
  const MarkovSource source(5, 3);
  std::vector<std::array<double, 5>> at(3);
  std::vector<Token> tokens(40);
  constexpr int kSamples = 40000;
  for (std::uint64_t index = 0; index < kSamples; ++index) {
    source.sample(index, tokens);
    at[0][static_cast<std::size_t>(tokens[0])] += 1.0 / kSamples;
    at[1][static_cast<std::size_t>(tokens[1])] += 1.0 / kSamples;
    at[2][static_cast<std::size_t>(tokens[39])] += 1.0 / kSamples;
  }
  for (std::size_t s = 0; s < 5; ++s) {
    CHECK_THAT(at[0][s], WithinAbs(at[1][s], 0.012));
    CHECK_THAT(at[0][s], WithinAbs(at[2][s], 0.012));
  }
}

TEST_CASE("a sample is a function of seed and index") {
  const MarkovSource source(300, 7), same(300, 7), other(300, 8);
  std::vector<Token> a(65), b(65), prefix(10);
  source.sample(123456789, a);
  source.sample(5, b);
  CHECK(a != b);
  same.sample(123456789, b);
  CHECK(a == b);
  source.sample(123456789, prefix);
  CHECK(std::equal(prefix.begin(), prefix.end(), a.begin()));
  other.sample(123456789, b);
  CHECK(a != b);
  for (const Token token : a) CHECK((token >= 0 && token < 300));
}

TEST_CASE("a chain needs two states") {
  const auto error = thrown_by([] { MarkovSource(1, 1); });
  CHECK(error.status == 2);
  CHECK(error.text == "model.vocab = 1: synthetic data needs 2 or more tokens");
}

}  // namespace kozero::data
