// SPDX-FileCopyrightText: The KoZeRO authors
// SPDX-License-Identifier: Apache-2.0
// evaluation.cpp: sums of losses in the order of granules, and the schedule and text of a run's validation.
#include <fmt/format.h>
#include <algorithm>
#include <cmath>

#include <kozero/core/error.hpp>
#include <kozero/core/events.hpp>
#include <kozero/core/mixture.hpp>
#include <kozero/data/data_set.hpp>
#include <kozero/distributed/agreement.hpp>
#include <kozero/train/evaluation.hpp>
#include "io/posix/readable.hpp"

namespace kozero::train {
namespace {

/// Whether validation is by source: a mixture of which a source has validation data.
bool has_sources(const data::DataSet& data) {
  return data.is_mixture() &&
         std::ranges::any_of(data.sources, [](const auto& each) { return each.validation != nullptr; });
}

}  // namespace

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

std::string text_of_non_finite(const Evaluation& evaluation, const std::string& what) {
  if (std::isfinite(evaluation.loss)) return "";
  return fmt::format("{} is {}", what, evaluation.loss);
}

std::optional<Evaluation> evaluate_sources(Evaluator& evaluator, const data::DataSet& data, Side side,
                                           std::int64_t max_samples, const std::function<bool()>& stops) {
  const auto slots = data.slots();
  Evaluation all;
  double sum = 0.0, shares = 0.0;
  for (std::size_t i = 0; i < data.sources.size(); ++i) {
    const data::SourceData& source = data.sources[i];
    const auto& samples = side == Side::training ? source.train : source.validation;
    if (samples == nullptr) continue;
    const std::int64_t most =
        slots.empty() ? max_samples : (max_samples * slots[i] + kMixtureSlots - 1) / kMixtureSlots;
    const auto one = evaluate(evaluator, *samples, most, stops);
    if (!one) return std::nullopt;
    const double share = static_cast<double>(slots.empty() ? one->targets : slots[i]);
    sum += share * one->loss;
    shares += share;
    all.targets += one->targets;
    all.sources.push_back({source.name, one->loss, one->targets,
                           side == Side::training ? source.train_bytes_per_token : source.validation_bytes_per_token});
  }
  all.loss = sum / shares;
  return all;
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
  const std::int64_t most = deck_.train.eval_batches * settings_.batch.global_batch;
  return has_sources(data_) ? evaluate_sources(evaluator_, data_, Side::validation, most, stops)
                            : evaluate(evaluator_, *data_.validation, most, stops);
}

std::string Validation::coverage(const Evaluation& evaluation) const {
  const auto targets_in = [&](const data::SampleSource& source) {
    std::int64_t targets = source.num_samples() * settings_.step.seq + source.tail();
    for (std::int64_t i = 0; i <= source.num_samples(); ++i) targets -= source.ignored_targets(i);
    return targets;
  };
  std::int64_t all = 0;
  for (const auto& source : data_.sources) all += source.validation != nullptr ? targets_in(*source.validation) : 0;
  if (!has_sources(data_)) all = targets_in(*data_.validation);
  return "on " + io::grouped_digits(evaluation.targets) + " of " + io::grouped_digits(all) + " tokens";
}

}  // namespace kozero::train
