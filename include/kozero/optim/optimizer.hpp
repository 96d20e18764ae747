// SPDX-FileCopyrightText: The KoZeRO authors
// SPDX-License-Identifier: Apache-2.0
// optimizer.hpp: AdamW and SGD on flat arrays, and the learning rate of each step.
#pragma once
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include <kozero/core/ledger.hpp>
#include <kozero/core/parameter_table.hpp>
#include <kozero/core/precision.hpp>

namespace kozero::optim {

// Elementwise updates of flat weights by flat gradients, with state per element.
// The caller's elements form one flat array (its shards of all units, in order). update() takes any contiguous part of
// this array, such as one shard; the bits do not depend on the division into parts. Segments say which elements have
// weight decay.

struct Config {
  std::string kind = "adamw";  ///< adamw, sgd
  double beta1 = 0.9;
  double beta2 = 0.999;
  double eps = 1e-8;
  double weight_decay = 0.01;
  double momentum = 0.0;
};

/// The inputs that differ from step to step.
struct Step {
  std::int64_t number = 1;  ///< from 1
  double lr = 0.0;
  double gradient_scale = 1.0;  ///< factor on the gradient (clipping)
};

/// The weights that an update changes.
template <class Scalar>
struct Target {
  Vector<float> master;
  Vector<Scalar> stored = {};  ///< the weights that a model reads; written if they have 16 bits

  [[nodiscard]] Target part(std::int64_t first, std::int64_t extent) const {
    return {slice(master, first, extent), slice(stored, first, extent)};
  }
};

/// Elements [first, first + extent) of the flat array, all with weight decay or all without.
struct Segment {
  std::int64_t first = 0;
  std::int64_t extent = 0;
  bool decay = false;
};

/// The segments of a rank's ranges: decay as set for each tensor, none on pads. Neighbours with equal decay are merged.
std::vector<Segment> segments_of(const ParameterTable& table, const std::vector<UnitRange>& ranges);

/// A named array of state, one value per element of the caller's flat array.
struct NamedState {
  std::string name;  ///< "exp_avg", "exp_avg_sq", "momentum_buffer"
  Vector<float> values;
};

/// An optimizer of weights that a model reads as Scalar.
template <class Scalar>
class Optimizer {
 public:
  virtual ~Optimizer() = default;
  [[nodiscard]] virtual std::string name() const = 0;
  /// Updates flat elements [first, first + target.master.extent(0)). If the states come from a source of Kind::host,
  /// the host's cores run the update, and target and gradient must be in memory that the host reaches.
  virtual void update(std::int64_t first, const Target<Scalar>& target, Vector<const float> gradient,
                      const Step& step) = 0;
  [[nodiscard]] virtual std::vector<NamedState> states() const = 0;
};

/// Takes the state of all segments' elements (Memory::optimizer), from `memory` unless it is nullptr. Throws
/// Error(deck) for an unknown kind.
template <class Scalar>
std::unique_ptr<Optimizer<Scalar>> make_optimizer(const Config& config, std::vector<Segment> segments,
                                                  MemoryLedger& ledger, MemorySource* memory = nullptr);

// The learning rate of each step.
//   step <= warmup_steps:  lr * step / warmup_steps                                 steps count from 1
//   later, all kinds:      min_lr + (lr - min_lr) * f(p),  p = min(1, max(0, step - 1 - start) / fall)
//   constant  f = 1                              linear  f = 1 - p
//   cosine    f = (1 + cos(pi p)) / 2            wsd     f = 1 - p (warm-up, stable, decay)
//   fall = decay_steps, or 0: from the end of the warm-up to the last step
//   start = warmup_steps; for wsd max(warmup_steps, total_steps - fall)
// So step start + 1 still has the full rate, and steps from start + fall + 1 on have min_lr (constant: never).
// Loshchilov, Hutter 2017, arXiv:1608.03983 (cosine); Hu et al. 2024, arXiv:2404.06395 (wsd).

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
