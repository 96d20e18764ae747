// SPDX-FileCopyrightText: The KoZeRO authors
// SPDX-License-Identifier: Apache-2.0
// likelihood.hpp: log-likelihoods of the ends of token sequences, computed by all ranks together.
//   l = sum over the last `scored` tokens x_t of log p(x_t | x_1 ... x_{t-1})
// Each sequence is a batch of its own, and rank r of n computes the sequences r, r + n, ..., so the bits depend neither
// on the ranks nor on the other sequences.
#pragma once
#include <vector>

#include <kozero/data/choices.hpp>
#include <kozero/train/engine.hpp>

namespace kozero::train {

/// The number of this rank's sequences among `count`.
std::size_t sequences_of_rank(std::size_t count, const distributed::Communicator& comm);

/// The log-likelihoods of `count` sequences, in order, on every rank. `mine`: this rank's, each of 2 to
/// evaluator.seq() + 1 tokens. Collective.
std::vector<double> log_likelihoods(Evaluator& evaluator, const std::vector<data::ScoredTokens>& mine,
                                    std::size_t count);

}  // namespace kozero::train
