// SPDX-FileCopyrightText: The KoZeRO authors
// SPDX-License-Identifier: Apache-2.0
// sampler.hpp: the samples of a step, and the samples of each rank in each micro-step.
//   epoch e visits sample permuted(key(seed, e), p) at position p = 0 ... num_samples-1: a bijection, so each once
//   step k of an epoch takes positions [k*G, min((k+1)*G, num_samples)): the epoch's last step may be incomplete
// With weights, the samples of several sources are mixed (mixture.hpp) and never end:
//   step k from 1 takes positions [(k-1)*G, k*G); position p is sample k of source i, and so sample
//   permuted(key(seed, i, e), k mod n_i) of the source's n_i, in the source's epoch e = k / n_i
// In both cases:
//   granule g of a step: micro_batch consecutive positions, the last granule maybe fewer; in micro-step m rank r of n
//   has granule m n + r, or none behind the last
// All of this is a function of (seed, step), so the data's state is one integer and does not depend on the rank count.
#pragma once
#include <algorithm>
#include <cstdint>
#include <optional>
#include <vector>

#include <kozero/core/mixture.hpp>
#include <kozero/data/batch_loader.hpp>

namespace kozero::data {

/// Positions [first, first + count) of an epoch, or of a mixture.
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

/// A source of a mixture.
struct MixedSource {
  std::int64_t num_samples = 0;
  double weight = 0.0;
};

/// Where a sampler begins: behind `steps_before` steps, with an epoch's first position.
struct SamplingBegin {
  std::int64_t steps_before = 0;
  std::int64_t epoch = 0;
  std::int64_t streams = 0;  ///< added to the epoch in a sample's name: lessons have random streams of their own
};

/// Chooses the samples of each step; see above. The samples of a mixture's sources are numbered one source behind the
/// other.
class Sampler {
 public:
  /// `global_batch`: G, sequences per step over all ranks. `begin`: the first step and its epoch. Throws Error(deck) if
  /// there are no samples.
  Sampler(std::uint64_t seed, std::int64_t num_samples, std::int64_t global_batch, const SamplingBegin& begin = {});
  /// A mixture, which begins behind begin.steps_before. Throws Error(deck) if a source has no samples.
  Sampler(std::uint64_t seed, const std::vector<MixedSource>& sources, std::int64_t global_batch,
          const SamplingBegin& begin = {});

  [[nodiscard]] std::int64_t steps_per_epoch() const { return (num_samples_ + global_batch_ - 1) / global_batch_; }
  [[nodiscard]] std::int64_t num_samples() const { return num_samples_; }
  /// Sequences of each step but an epoch's last one: G, or all samples if these are fewer.
  [[nodiscard]] std::int64_t sequences_of_step() const {
    return mixture_ ? global_batch_ : std::min(global_batch_, num_samples_);
  }
  /// Sequences of an epoch's last step. A mixture's steps all have G.
  [[nodiscard]] std::int64_t sequences_of_last_step() const {
    return mixture_ ? global_batch_ : num_samples_ - (steps_per_epoch() - 1) * global_batch_;
  }
  /// The epoch (from 0) of a step.
  [[nodiscard]] std::int64_t epoch(std::int64_t step) const {
    return begin_.epoch + (step - 1 - begin_.steps_before) / steps_per_epoch();
  }
  /// Passes over the samples after a step: complete epochs, and the completed fraction of the current epoch. Of a
  /// mixture: samples taken / samples of all sources.
  [[nodiscard]] double epochs_after(std::int64_t step) const;
  /// The step's positions in its epoch, or in the mixture.
  [[nodiscard]] Share positions(std::int64_t step) const;
  /// The sample at a position of an epoch.
  [[nodiscard]] std::int64_t sample(std::int64_t epoch, std::int64_t position) const;
  /// The name of the sample at one of the step's positions.
  [[nodiscard]] SampleName name(std::int64_t step, std::int64_t position) const;

  /// Null unless this is a mixture.
  [[nodiscard]] const Mixture* mixture() const { return mixture_ ? &*mixture_ : nullptr; }
  /// Of a mixture: passes over a source after a step.
  [[nodiscard]] double passes_after(std::int64_t step, std::size_t source) const;
  /// Of a mixture: the last step, at most `steps`, that ends within `passes` passes over a source.
  [[nodiscard]] std::int64_t last_step(std::size_t source, std::int64_t passes, std::int64_t steps) const;

 private:
  /// A mixture's source.
  struct Source {
    std::int64_t first;  ///< the number of its first sample
    std::int64_t num_samples;
  };

  std::uint64_t seed_;
  std::int64_t num_samples_;
  std::int64_t global_batch_;
  /// Samples of a mixture that were taken after a step.
  [[nodiscard]] std::int64_t taken_after(std::int64_t step) const {
    return (step - begin_.steps_before) * global_batch_;
  }

  SamplingBegin begin_;
  std::optional<Mixture> mixture_;
  std::vector<Source> sources_;  ///< of the mixture
};

}  // namespace kozero::data
