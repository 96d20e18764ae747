// SPDX-FileCopyrightText: The KoZeRO authors
// SPDX-License-Identifier: Apache-2.0
// sampler.hpp: which samples a step takes, and which of them this rank takes in each micro-step.
//   epoch e visits sample permuted(key(seed, e), p) at position p = 0 ... num_samples-1: a bijection, so each once
//   step k of an epoch takes positions [k*G, min((k+1)*G, num_samples)): the epoch's last step may be incomplete
//   rank r of n takes a contiguous part of the step, micro-step a of A a contiguous part of that; parts may be empty
// Everything is a function of (seed, step), so the data state is one integer and survives a change of rank count.
#pragma once
#include <cstdint>

namespace kozero::train {

/// Positions [first, first + count) of an epoch.
struct Share {
  std::int64_t first = 0;
  std::int64_t count = 0;
};

/// Part `part` of `parts` of a share: contiguous, in order, sizes differing by at most one.
Share share_of(const Share& all, std::int64_t part, std::int64_t parts);

class Sampler {
 public:
  /// `global_batch` G sequences a step over all ranks. Throws Error(deck) where there is no sample.
  Sampler(std::uint64_t seed, std::int64_t num_samples, std::int64_t global_batch);

  [[nodiscard]] std::int64_t steps_per_epoch() const { return (num_samples_ + global_batch_ - 1) / global_batch_; }
  [[nodiscard]] std::int64_t num_samples() const { return num_samples_; }
  /// The epoch (from 0) of a step (from 1).
  [[nodiscard]] std::int64_t epoch(std::int64_t step) const { return (step - 1) / steps_per_epoch(); }
  /// Passes over the samples after a step: epochs that are complete, and the part of the one under way.
  [[nodiscard]] double epochs_after(std::int64_t step) const;
  /// The step's positions in its epoch.
  [[nodiscard]] Share positions(std::int64_t step) const;
  /// The sample at a position of an epoch.
  [[nodiscard]] std::int64_t sample(std::int64_t epoch, std::int64_t position) const;

 private:
  std::uint64_t seed_;
  std::int64_t num_samples_;
  std::int64_t global_batch_;
};

}  // namespace kozero::train
