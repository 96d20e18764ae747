// SPDX-FileCopyrightText: The KoZeRO authors
// SPDX-License-Identifier: Apache-2.0
// evaluation.cpp: sums of losses in the order of granules, and the schedule and text of a run's validation.
#include <algorithm>

#include <kozero/core/error.hpp>
#include <kozero/core/events.hpp>
#include <kozero/data/data_set.hpp>
#include <kozero/distributed/agreement.hpp>
#include <kozero/train/evaluation.hpp>
#include "io/posix/readable.hpp"

namespace kozero::train {

std::int64_t spread_sample(std::int64_t i, std::int64_t count, std::int64_t total) {
  // total = count q + r: each term stays far below 2^63, while (2 i + 1) total might not.
  const std::int64_t q = total / count;
  const std::int64_t r = total % count;
  return i * q + (q + (2 * i + 1) * r / count) / 2;
}

Evaluation evaluate(Evaluator& evaluator, const data::SampleSource& source, std::int64_t max_samples) {
  return *evaluate(evaluator, source, max_samples, {});
}

std::optional<Evaluation> evaluate(Evaluator& evaluator, const data::SampleSource& source, std::int64_t max_samples,
                                   const std::function<bool()>& stops) {
  distributed::Communicator& comm = evaluator.comm();
  const std::int64_t all = source.num_samples();
  const std::int64_t total = max_samples > 0 ? std::min(max_samples, all) : all;
  const data::Granules granules(data::Share{0, total}, evaluator.loader().micro_batch());
  std::vector<double> losses;
  // Every rank makes as many calls as rank 0, since a call may gather parameters.
  for (int round = 0; round < granules.micro_steps(comm.size()); ++round) {
    if (stops && stops()) return std::nullopt;
    const data::Share mine = granules.granule(std::int64_t{round} * comm.size() + comm.rank());
    std::vector<data::SampleName> names;
    for (std::int64_t i = mine.first; i < mine.first + mine.count; ++i) {
      names.push_back(data::SampleName{0, spread_sample(i, total, all)});
    }
    losses.push_back(evaluator.evaluate(evaluator.loader().load(source, names)));
  }
  std::int64_t ignored = 0;
  for (std::int64_t i = 0; i < total; ++i) ignored += source.ignored_targets(spread_sample(i, total, all));
  double loss = data::sum_over_granules(distributed::from_all_ranks(comm, losses), comm.size(), granules.count());
  const std::int64_t tail = total == all ? source.tail() : 0;
  if (tail > 0) {
    const bool is_mine = comm.rank() == 0;
    const double of_tail =
        evaluator.evaluate(is_mine ? evaluator.loader().load_tail(source) : evaluator.loader().load(source, {}));
    loss += distributed::broadcast_value(comm, of_tail);
    ignored += source.ignored_targets(all);
  }
  const std::int64_t targets = std::max<std::int64_t>(1, total * evaluator.seq() + tail - ignored);
  return Evaluation{loss / static_cast<double>(targets), targets};
}

void require_validation_data(const io::Deck& deck, const data::DataSet& data) {
  if (!deck.checkpoint.keep_best || data.validation != nullptr) return;
  throw Error(
      Failure::deck,
      "checkpoint.keep_best = true: the data are too few to keep any for validation; accepted is false, or give "
      "more text or a larger data.val_fraction");
}

Validation::Validation(const io::Deck& deck, const Settings& settings, Evaluator& evaluator, const data::DataSet& data)
    : deck_(deck), settings_(settings), evaluator_(evaluator), data_(data) {}

bool Validation::due(std::int64_t step, bool is_saved) const {
  if (!possible()) return false;
  const std::int64_t every = deck_.train.eval_every;
  return (every > 0 && step % every == 0) || (deck_.checkpoint.keep_best && is_saved);
}

std::optional<Evaluation> Validation::measure(const std::function<bool()>& stops) const {
  const Phase phase("evaluation");
  const EventScope event({.name = "evaluation"});
  return evaluate(evaluator_, *data_.validation, deck_.train.eval_batches * settings_.batch.global_batch, stops);
}

std::string Validation::coverage(const Evaluation& evaluation) const {
  const data::SampleSource& source = *data_.validation;
  std::int64_t all = source.num_samples() * settings_.step.seq + source.tail();
  for (std::int64_t i = 0; i <= source.num_samples(); ++i) all -= source.ignored_targets(i);
  return "on " + io::grouped_digits(evaluation.targets) + " of " + io::grouped_digits(all) + " tokens";
}

}  // namespace kozero::train
