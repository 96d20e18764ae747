// SPDX-FileCopyrightText: The KoZeRO authors
// SPDX-License-Identifier: Apache-2.0
// schedule.hpp: the learning rate of each step.
//   step <= warmup_steps:  lr * step / warmup_steps                                 steps count from 1
//   later, all kinds:      min_lr + (lr - min_lr) * f(p),  p = min(1, max(0, step - 1 - start) / fall)
//   constant  f = 1                              linear  f = 1 - p
//   cosine    f = (1 + cos(pi p)) / 2            wsd     f = 1 - p (warm-up, stable, decay)
//   fall = decay_steps, or 0: from the end of the warm-up to the last step
//   start = warmup_steps; for wsd max(warmup_steps, total_steps - fall)
// So step start + 1 still has the full rate, and steps from start + fall + 1 on have min_lr (constant: never).
// Loshchilov, Hutter 2017, arXiv:1608.03983 (cosine); Hu et al. 2024, arXiv:2404.06395 (wsd).
#pragma once
#include <cstdint>
#include <string>

namespace kozero::optim {

struct ScheduleConfig {
  std::string kind = "constant";  ///< constant, linear, cosine, wsd
  double lr = 1e-4;               ///< the largest rate
  double min_lr = 0.0;            ///< the rate after the fall
  std::int64_t warmup_steps = 0;
  std::int64_t decay_steps = 0;
  std::int64_t total_steps = 0;
};

/// The rate of `step`, from 1. Throws Error(deck) for an unknown kind.
double learning_rate(const ScheduleConfig& config, std::int64_t step);

/// A rate tuned for `base_ranks`, scaled to `num_ranks`; batch_scaling grows the batch in proportion to the ranks.
///   none: rate      linear: rate * num_ranks / base_ranks      sqrt: rate * sqrt(num_ranks / base_ranks)
/// Throws Error(deck) for any other text.      Goyal et al. 2017, arXiv:1706.02677 (linear).
double scaled_rate(const std::string& batch_scaling, double rate, std::int64_t num_ranks, std::int64_t base_ranks);

}  // namespace kozero::optim
