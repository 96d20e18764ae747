// SPDX-FileCopyrightText: The KoZeRO authors
// SPDX-License-Identifier: Apache-2.0
// markov.hpp: synthetic text of known entropy: a first-order Markov chain over V tokens.
//   P(s -> t) > 0 for min(V, 8) successors t of each s;  loss floor = -sum_s pi_s sum_t P_st ln P_st,  pi P = pi
// A sample is a function of (seed, index) alone: its first token is drawn from pi, so every position has the same
// entropy rate. State s always reaches s + 1 and 0 reaches itself: irreducible and aperiodic, hence pi is unique.
#pragma once
#include <cstdint>
#include <span>
#include <vector>

#include <kozero/core/views.hpp>

namespace kozero::data {

class MarkovSource {
 public:
  /// Throws Error(deck) for a vocabulary below 2.
  MarkovSource(std::int64_t vocab, std::uint64_t seed);

  [[nodiscard]] std::int64_t vocab() const { return static_cast<std::int64_t>(start_.size()); }
  /// Nats per token that no model can go below, after the first token.
  [[nodiscard]] double entropy_rate() const { return entropy_rate_; }
  /// Fills `tokens` with the first tokens of sample `index`.
  void sample(std::uint64_t index, std::span<Token> tokens) const;

 private:
  struct Row {
    std::vector<Token> successors;
    std::vector<double> cumulative;  ///< probabilities added up; the last is 1
  };
  [[nodiscard]] static Row make_row(std::int64_t state, std::int64_t vocab, std::uint64_t seed);
  [[nodiscard]] std::vector<double> stationary() const;

  std::uint64_t key_;
  std::vector<Row> rows_;
  std::vector<double> start_;  ///< pi added up
  double entropy_rate_ = 0.0;
};

}  // namespace kozero::data
