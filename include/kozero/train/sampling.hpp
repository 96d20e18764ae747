// SPDX-FileCopyrightText: The KoZeRO authors
// SPDX-License-Identifier: Apache-2.0
// sampling.hpp: the choice of the next token from logits, by the rules and in the order of transformers' generate.
//   repetition penalty r   a token that the sequence has:  logit / r if the logit is positive, else logit * r
//   temperature t          p = softmax(logits / t); 0 takes the likeliest token
//   top-k                  the k likeliest tokens
//   top-p                  of these the fewest likeliest whose mass is at least top_p of theirs
//   min-p                  of these the tokens with p >= min_p times the largest p
// What is left is renormalized. Ties are ordered by token id, where transformers keeps all ties of the k-th token.
// Repetition penalty: Keskar et al. 2019, arXiv:1909.05858. top-p: Holtzman et al. 2020, arXiv:1904.09751. min-p:
// Nguyen et al. 2024, arXiv:2407.01082.
#pragma once
#include <cstdint>
#include <span>
#include <vector>

#include <kozero/core/views.hpp>

namespace kozero::train {

struct Sampling {
  double temperature = 1.0;
  std::int64_t top_k = 0;           ///< 0: no limit
  double top_p = 1.0;               ///< 1: no limit
  double min_p = 0.0;               ///< 0: no limit
  double repetition_penalty = 1.0;  ///< 1: none
  std::uint64_t seed = 1;
};

/// Applies the repetition penalty to the logits of each token in `sequence`, once. Tokens without a logit are skipped.
void penalize(std::span<float> logits, std::span<const Token> sequence, double penalty);

struct Candidate {
  Token token;
  double probability;
};

/// The tokens that sampling may pick and their probabilities, likeliest first. The logits are already penalized.
std::vector<Candidate> candidates(std::span<const float> logits, const Sampling& sampling);

/// The token that `uniform` in [0, 1) picks from candidates().
Token pick_token(std::span<const float> logits, const Sampling& sampling, double uniform);

}  // namespace kozero::train
