// SPDX-FileCopyrightText: The KoZeRO authors
// SPDX-License-Identifier: Apache-2.0
#include <kozero/core/error.hpp>
#include <kozero/core/position.hpp>
#include <kozero/io/readable.hpp>

#include "validation.hpp"

namespace kozero::commands {

void require_validation_data(const io::Deck& deck, const train::DataSet& data) {
  if (!deck.checkpoint.keep_best || data.validation != nullptr) return;
  throw Error(
      Failure::deck,
      "checkpoint.keep_best = true: the data are too few to keep any for validation; accepted is false, or give "
      "more text or a larger data.val_fraction");
}

Validation::Validation(const io::Deck& deck, const train::Settings& settings, train::Assembly& assembly,
                       dist::Communicator& comm, const train::DataSet& data)
    : deck_(deck), settings_(settings), assembly_(assembly), comm_(comm), data_(data) {}

bool Validation::due(std::int64_t step, bool is_saved) const {
  if (!possible()) return false;
  const std::int64_t every = deck_.train.eval_every;
  return (every > 0 && step % every == 0) || (deck_.checkpoint.keep_best && is_saved);
}

std::optional<train::Evaluation> Validation::measure(const std::function<bool()>& stops) const {
  const Phase phase("evaluation");
  const train::Evaluator evaluator{assembly_.network(), comm_, assembly_.loader(), settings_.batch.micro_batch};
  return train::evaluate(evaluator, *data_.validation, deck_.train.eval_batches * settings_.batch.global_batch, stops);
}

std::string Validation::coverage(const train::Evaluation& evaluation) const {
  const std::int64_t all = data_.validation->num_samples() * settings_.model.seq + data_.validation->tail();
  return "on " + io::grouped_digits(evaluation.tokens) + " of " + io::grouped_digits(all) + " tokens";
}

}  // namespace kozero::commands
