// SPDX-FileCopyrightText: The KoZeRO authors
// SPDX-License-Identifier: Apache-2.0
// evaluation.hpp: the mean loss of a model over a set of samples, shared among the ranks.
//   loss = sum over samples and tokens / number of tokens      perplexity = e^loss
//   bits per byte = loss / ln 2 / (bytes per token)
#pragma once
#include <functional>
#include <optional>

#include <kozero/dist/communicator.hpp>
#include <kozero/model/network.hpp>
#include <kozero/train/batch_loader.hpp>

namespace kozero::train {

/// What evaluation needs; all outlive the call.
struct Evaluator {
  model::Network& network;
  dist::Communicator& comm;
  BatchLoader& loader;
  std::int64_t micro_batch;  ///< sequences a rank holds at once
};

struct Evaluation {
  double loss = 0.0;  ///< nats per token
  std::int64_t tokens = 0;
};

/// Over `max_samples` samples without dropout, spread evenly over the source; which ones depends on the source's size
/// alone, so that any rank count takes the same. Where it is 0 or at least the source's size: over all samples and the
/// source's tail, so that every token is predicted once. Sums are in double, added in rank order.
Evaluation evaluate(const Evaluator& evaluator, const SampleSource& source, std::int64_t max_samples);

/// The same; `stops` is asked before each batch, on all ranks at once with one answer: none where it said so.
std::optional<Evaluation> evaluate(const Evaluator& evaluator, const SampleSource& source, std::int64_t max_samples,
                                   const std::function<bool()>& stops);

/// Of `count` samples out of `total`, spread evenly, the `i`-th: floor((2 i + 1) total / (2 count)). Increases with i;
/// is i where count = total.
std::int64_t spread_sample(std::int64_t i, std::int64_t count, std::int64_t total);

}  // namespace kozero::train
