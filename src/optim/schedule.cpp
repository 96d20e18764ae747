// SPDX-FileCopyrightText: The KoZeRO authors
// SPDX-License-Identifier: Apache-2.0
// schedule.cpp: the schedules by name, and rates scaled with the number of ranks.
#include <algorithm>
#include <array>
#include <cmath>
#include <numbers>
#include <string_view>

#include <kozero/core/choices.hpp>
#include <kozero/core/error.hpp>
#include <kozero/core/portable_math.hpp>
#include <kozero/optim/schedule.hpp>

namespace kozero::optim {

namespace {

struct Schedule {
  std::string_view name;
  bool decays_last;  ///< the decay ends at the last step, wherever it starts
  /// (lr(p) - min_lr) / (lr - min_lr), where p in [0, 1] is the completed share of the decay.
  double (*rest)(double p);
};

constexpr std::array kScheduleRows = {
    Schedule{"constant", false, [](double) { return 1.0; }},
    Schedule{"linear", false, [](double p) { return 1.0 - p; }},
    Schedule{"cosine", false, [](double p) { return 0.5 * (1.0 + portable_cos(std::numbers::pi * p)); }},
    Schedule{"wsd", true, [](double p) { return 1.0 - p; }},
};

struct BatchScaling {
  std::string_view name;
  double (*rate_factor)(double growth);  ///< growth: num_ranks / base_ranks
};

constexpr std::array kScalingRows = {
    BatchScaling{"none", [](double) { return 1.0; }},
    BatchScaling{"linear", [](double growth) { return growth; }},
    BatchScaling{"sqrt", [](double growth) { return std::sqrt(growth); }},
};

constexpr std::string_view view_of(const char* name) { return name; }
static_assert(std::ranges::equal(kScheduleRows, kSchedules, {}, &Schedule::name, view_of),
              "each schedule of choices.hpp has a row");
static_assert(std::ranges::equal(kScalingRows, kBatchScalings, {}, &BatchScaling::name, view_of),
              "each batch scaling of choices.hpp has a row");

/// The row of a key's value. Throws Error(deck) if there is none.
template <class Rows>
const auto& row_of(const Rows& rows, const std::string& key, const std::string& value, const auto& names) {
  const auto* const row = std::ranges::find(rows, value, [](const auto& each) { return each.name; });
  if (row == rows.end()) throw Error(Failure::deck, key + " = \"" + value + "\": accepted are " + list_of(names));
  return *row;
}

}  // namespace

double learning_rate(const ScheduleConfig& config, std::int64_t step) {
  const std::int64_t after_warmup = std::max<std::int64_t>(1, config.total_steps - config.warmup_steps);
  const std::int64_t fall = config.decay_steps > 0 ? config.decay_steps : after_warmup;
  const Schedule& schedule = row_of(kScheduleRows, "optim.schedule", config.kind, kSchedules);
  const std::int64_t last_start = schedule.decays_last ? config.total_steps - fall : 0;
  const std::int64_t start = std::max(config.warmup_steps, last_start);
  const auto fallen = static_cast<double>(std::clamp<std::int64_t>(step - 1 - start, 0, fall));
  const double rest = schedule.rest(fallen / static_cast<double>(fall));
  if (step <= config.warmup_steps) {
    return config.lr * static_cast<double>(step) / static_cast<double>(config.warmup_steps);
  }
  return config.min_lr + (config.lr - config.min_lr) * rest;
}

double scaled_rate(const std::string& batch_scaling, double rate, std::int64_t num_ranks, std::int64_t base_ranks) {
  const double growth = static_cast<double>(num_ranks) / static_cast<double>(base_ranks);
  return rate * row_of(kScalingRows, "train.batch_scaling", batch_scaling, kBatchScalings).rate_factor(growth);
}

}  // namespace kozero::optim
