// SPDX-FileCopyrightText: The KoZeRO authors
// SPDX-License-Identifier: Apache-2.0
// schedule.cpp: the schedules by name, and rates scaled with the number of ranks.
#include <algorithm>
#include <cmath>
#include <numbers>

#include <kozero/core/choices.hpp>
#include <kozero/core/error.hpp>
#include <kozero/optim/schedule.hpp>

namespace kozero::optim {

namespace {

/// (lr(p) - min_lr) / (lr - min_lr), where p in [0, 1] is the completed share of the decay.
double rest_of_fall(const std::string& kind, double p) {
  if (kind == "constant") return 1.0;
  if (kind == "linear" || kind == "wsd") return 1.0 - p;
  if (kind == "cosine") return 0.5 * (1.0 + std::cos(std::numbers::pi * p));
  throw Error(Failure::deck, "optim.schedule = \"" + kind + "\": accepted are " + list_of(kSchedules));
}

}  // namespace

double learning_rate(const ScheduleConfig& config, std::int64_t step) {
  const std::int64_t after_warmup = std::max<std::int64_t>(1, config.total_steps - config.warmup_steps);
  const std::int64_t fall = config.decay_steps > 0 ? config.decay_steps : after_warmup;
  const std::int64_t last_start = config.kind == "wsd" ? config.total_steps - fall : 0;
  const std::int64_t start = std::max(config.warmup_steps, last_start);
  const auto fallen = static_cast<double>(std::clamp<std::int64_t>(step - 1 - start, 0, fall));
  const double rest = rest_of_fall(config.kind, fallen / static_cast<double>(fall));
  if (step <= config.warmup_steps) {
    return config.lr * static_cast<double>(step) / static_cast<double>(config.warmup_steps);
  }
  return config.min_lr + (config.lr - config.min_lr) * rest;
}

double scaled_rate(const std::string& batch_scaling, double rate, std::int64_t num_ranks, std::int64_t base_ranks) {
  const double growth = static_cast<double>(num_ranks) / static_cast<double>(base_ranks);
  if (batch_scaling == "none") return rate;
  if (batch_scaling == "linear") return rate * growth;
  if (batch_scaling == "sqrt") return rate * std::sqrt(growth);
  throw Error(Failure::deck,
              "train.batch_scaling = \"" + batch_scaling + "\": accepted are " + list_of(kBatchScalings));
}

}  // namespace kozero::optim
