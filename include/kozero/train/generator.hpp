// SPDX-FileCopyrightText: The KoZeRO authors
// SPDX-License-Identifier: Apache-2.0
// generator.hpp: continues a token sequence with a model's weights, one token at a time.
//   p = softmax(logits / temperature), kept to the top_k likeliest and to the smallest set of mass top_p, renormalised
// temperature 0 takes the likeliest token. The i-th random number is Philox of (seed, i): the same text on any ranks.
// Only the last T tokens are seen by the model. top-p: Holtzman et al. 2020, arXiv:1904.09751.
#pragma once
#include <span>
#include <vector>

#include <kozero/dist/communicator.hpp>
#include <kozero/model/network.hpp>

namespace kozero::train {

struct Sampling {
  double temperature = 1.0;
  std::int64_t top_k = 0;  ///< 0: no limit
  double top_p = 1.0;      ///< 1: no limit
  std::uint64_t seed = 1;
};

/// The token that `uniform` in [0, 1) picks from the logits. Ties are ordered by token id.
Token pick_token(std::span<const float> logits, const Sampling& sampling, double uniform);

class Generator {
 public:
  /// Takes a context of T tokens and one row of logits. `vocab`: tokens that may be picked (a padded model has more).
  Generator(model::Network& network, dist::Communicator& comm, std::int64_t vocab, MemoryLedger& ledger);

  /// `count` tokens that follow `prompt` (at least one token). Collective: every rank gets the same ones.
  std::vector<Token> continued(const std::vector<Token>& prompt, std::int64_t count, const Sampling& sampling);

 private:
  [[nodiscard]] std::span<const float> logits_after(const std::vector<Token>& tokens);

  model::Network& network_;
  dist::Communicator& comm_;
  std::int64_t vocab_;
  Matrix<Token> context_;  // (1, T)
  Vector<float> logits_;   // (V)
  std::vector<Token> host_context_;
  std::vector<float> host_logits_;
};

}  // namespace kozero::train
