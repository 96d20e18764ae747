// SPDX-FileCopyrightText: The KoZeRO authors
// SPDX-License-Identifier: Apache-2.0
// sampler.hpp: the samples of a step, and the samples of each rank in each micro-step.
//   epoch e visits sample permuted(key(seed, e), p) at position p = 0 ... num_samples-1: a bijection, so each once
//   step k of an epoch takes positions [k*G, min((k+1)*G, num_samples)): the epoch's last step may be incomplete
//   granule g of a step: micro_batch consecutive positions, the last granule maybe fewer; in micro-step m rank r of n
//   has granule m n + r, or none behind the last
// All of this is a function of (seed, step), so the data's state is one integer and does not depend on the rank count.
#pragma once
#include <algorithm>
#include <cstdint>
#include <vector>

namespace kozero::data {

/// Positions [first, first + count) of an epoch.
struct Share {
  std::int64_t first = 0;
  std::int64_t count = 0;
};

/// A share divided into granules. A granule is the sequences of one micro-step on one rank; sums over sequences are
/// folded over granules, in order. The division does not depend on the number of ranks.
class Granules {
 public:
  Granules(const Share& all, std::int64_t micro_batch) : all_(all), micro_batch_(micro_batch) {}

  [[nodiscard]] std::int64_t count() const { return (all_.count + micro_batch_ - 1) / micro_batch_; }
  /// Micro-steps that `ranks` ranks need for all granules.
  [[nodiscard]] int micro_steps(int ranks) const { return static_cast<int>((count() + ranks - 1) / ranks); }
  /// How many ranks, counted from rank 0, have a granule in a micro-step.
  [[nodiscard]] int busy_ranks(int micro_step, int ranks) const {
    return static_cast<int>(std::min<std::int64_t>(ranks, count() - std::int64_t{micro_step} * ranks));
  }
  /// Granule `index`; empty behind the last granule.
  [[nodiscard]] Share granule(std::int64_t index) const {
    const std::int64_t first = std::min(index * micro_batch_, all_.count);
    return {all_.first + first, std::min(micro_batch_, all_.count - first)};
  }

 private:
  Share all_;
  std::int64_t micro_batch_;
};

/// The sum of one number per granule, in the order of granules. `values` are the numbers of all ranks, in rank order,
/// and of each rank by micro-step.
double sum_over_granules(const std::vector<double>& values, int ranks, std::int64_t granules);

/// Chooses the samples of each step; see above.
class Sampler {
 public:
  /// `global_batch`: G, sequences per step over all ranks. The first step is `steps_before` + 1. Throws Error(deck) if
  /// there are no samples.
  Sampler(std::uint64_t seed, std::int64_t num_samples, std::int64_t global_batch, std::int64_t steps_before = 0);

  [[nodiscard]] std::int64_t steps_per_epoch() const { return (num_samples_ + global_batch_ - 1) / global_batch_; }
  [[nodiscard]] std::int64_t num_samples() const { return num_samples_; }
  /// The epoch (from 0) of a step.
  [[nodiscard]] std::int64_t epoch(std::int64_t step) const { return (step - 1 - steps_before_) / steps_per_epoch(); }
  /// Passes over the samples after a step: complete epochs, and the completed fraction of the current epoch.
  [[nodiscard]] double epochs_after(std::int64_t step) const;
  /// The step's positions in its epoch.
  [[nodiscard]] Share positions(std::int64_t step) const;
  /// The sample at a position of an epoch.
  [[nodiscard]] std::int64_t sample(std::int64_t epoch, std::int64_t position) const;

 private:
  std::uint64_t seed_;
  std::int64_t num_samples_;
  std::int64_t global_batch_;
  std::int64_t steps_before_;
};

}  // namespace kozero::data
