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

/// Over the first `max_samples` samples in natural order, without dropout; where it is 0 or they are all, over the
/// source's tail too, so that every token is predicted once. Sums are in double, added in rank order.
Evaluation evaluate(const Evaluator& evaluator, const SampleSource& source, std::int64_t max_samples);

/// The same; `stops` is asked before each batch, on all ranks at once with one answer: none where it said so.
std::optional<Evaluation> evaluate(const Evaluator& evaluator, const SampleSource& source, std::int64_t max_samples,
                                   const std::function<bool()>& stops);

}  // namespace kozero::train
