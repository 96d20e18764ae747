// SPDX-FileCopyrightText: The KoZeRO authors
// SPDX-License-Identifier: Apache-2.0
// markov.cpp: the rows of the chain, its stationary distribution, and the samples drawn from it.
#include <algorithm>
#include <cmath>
#include <numeric>
#include <string>

#include <kozero/core/error.hpp>
#include <kozero/core/portable_math.hpp>
#include <kozero/core/random.hpp>
#include "src/data/markov.hpp"

namespace kozero::data {

namespace {

constexpr std::int64_t kSuccessors = 8;
constexpr int kMaxSweeps = 100000;
constexpr double kConverged = 1e-14;

/// A double in (0, 1) with 32 random bits.
double open_uniform(std::uint32_t word) { return (static_cast<double>(word) + 0.5) * 0x1p-32; }

/// The first entry whose cumulative probability exceeds u.
std::size_t drawn(const std::vector<double>& cumulative, double u) {
  const auto found = std::upper_bound(cumulative.begin(), cumulative.end(), u);
  return std::min(static_cast<std::size_t>(found - cumulative.begin()), cumulative.size() - 1);
}

void add_up(std::vector<double>& weights) {
  const double total = std::accumulate(weights.begin(), weights.end(), 0.0);
  std::partial_sum(weights.begin(), weights.end(), weights.begin());
  for (double& weight : weights) weight /= total;
}

double probability(const std::vector<double>& cumulative, std::size_t i) {
  return cumulative[i] - (i == 0 ? 0.0 : cumulative[i - 1]);
}

}  // namespace

/// Successors: s + 1, for state 0 also 0, then distinct ones from a seeded permutation, with weights -ln(u)^2: a few
/// likely, the others rare.
MarkovSource::Row MarkovSource::make_row(std::int64_t state, std::int64_t vocab, std::uint64_t seed) {
  Row row;
  row.successors.push_back(static_cast<Token>((state + 1) % vocab));
  if (state == 0) row.successors.push_back(0);
  const std::uint64_t key = stream_key(seed, "markov.row." + std::to_string(state));
  const auto wanted = static_cast<std::size_t>(std::min(vocab, kSuccessors));
  for (std::uint64_t position = 0; row.successors.size() < wanted; ++position) {
    const auto next = static_cast<Token>(permuted(key, position, static_cast<std::uint64_t>(vocab)));
    if (std::find(row.successors.begin(), row.successors.end(), next) == row.successors.end()) {
      row.successors.push_back(next);
    }
  }
  for (std::size_t i = 0; i < row.successors.size(); ++i) {
    const double exponential = -portable_log(open_uniform(philox(key, counter_of(i, 1)).x[0]));
    row.cumulative.push_back(exponential * exponential);
  }
  add_up(row.cumulative);
  return row;
}

/// Power iteration from the uniform distribution.
std::vector<double> MarkovSource::stationary() const {
  const std::size_t size = rows_.size();
  std::vector<double> now(size, 1.0 / static_cast<double>(size)), next(size);
  double change = 1.0;
  for (int sweep = 0; sweep < kMaxSweeps && change > kConverged; ++sweep) {
    std::fill(next.begin(), next.end(), 0.0);
    for (std::size_t s = 0; s < size; ++s) {
      for (std::size_t i = 0; i < rows_[s].successors.size(); ++i) {
        next[static_cast<std::size_t>(rows_[s].successors[i])] += now[s] * probability(rows_[s].cumulative, i);
      }
    }
    change = 0.0;
    for (std::size_t s = 0; s < size; ++s) change += std::abs(next[s] - now[s]);
    now.swap(next);
  }
  return now;
}

MarkovSource::MarkovSource(std::int64_t vocab, std::uint64_t seed) : key_(stream_key(seed, "markov.sample")) {
  if (vocab < 2) {
    throw Error(Failure::deck, "model.vocab = " + std::to_string(vocab) + ": synthetic data needs 2 or more tokens");
  }
  for (std::int64_t state = 0; state < vocab; ++state) rows_.push_back(make_row(state, vocab, seed));
  start_ = stationary();
  for (std::size_t s = 0; s < rows_.size(); ++s) {
    for (std::size_t i = 0; i < rows_[s].successors.size(); ++i) {
      const double p = probability(rows_[s].cumulative, i);
      if (p > 0.0) entropy_rate_ -= start_[s] * p * portable_log(p);
    }
  }
  add_up(start_);
}

void MarkovSource::sample(std::uint64_t index, std::span<Token> tokens) const {
  Words4 words{};
  for (std::size_t position = 0; position < tokens.size(); ++position) {
    if (position % 4 == 0) words = philox(key_, counter_of(position / 4, index));
    const double u = open_uniform(words.x[position % 4]);
    if (position == 0) {
      tokens[0] = static_cast<Token>(drawn(start_, u));
    } else {
      const Row& row = rows_[static_cast<std::size_t>(tokens[position - 1])];
      tokens[position] = row.successors[drawn(row.cumulative, u)];
    }
  }
}

}  // namespace kozero::data
