// SPDX-FileCopyrightText: The KoZeRO authors
// SPDX-License-Identifier: Apache-2.0
// mixture.hpp: which source has each sample of a weighted mixture. The deck's check and the sampler share it.
//   slots s_i:  1000 weight_i / (sum of weights), rounded by largest remainders, so that their sum is 1000
//   slot t:     of the sources with k < (t + 1) s_i / 1000, where k is the number of slots that source i has so far,
//   the
//               one whose deadline ceil(1000 (k + 1) / s_i) is the earliest; of equal ones the first
//   position p: sample (p / 1000) s_i + k of the source i that has slot p mod 1000 as its k-th
// with 1000 = kMixtureSlots.
// So in the first p positions each source has p s_i / 1000 samples, rounded up or down: within one sample of its share.
// Giving each slot to the source with the largest deficit does not guarantee that with many sources.
// Baruah, Cohen, Plaxton, Varvel, "Proportionate progress: a notion of fairness in resource allocation", Algorithmica
// 15, 1996.
#pragma once
#include <cstdint>
#include <vector>

namespace kozero {

inline constexpr std::int64_t kMixtureSlots = 1000;

/// The slots of each source, for positive weights with a finite sum. A source may have none.
std::vector<std::int64_t> mixture_slots(const std::vector<double>& weights);

/// The smallest weight with which a source has a slot for certain; `others`: the sum of the other sources' weights.
inline double least_weight(double others) { return others / static_cast<double>(kMixtureSlots - 1); }

class Mixture {
 public:
  /// Every source must have a slot.
  explicit Mixture(const std::vector<double>& weights);

  /// A sample of a source, counted from 0 over the whole mixture.
  struct Place {
    std::size_t source = 0;
    std::int64_t index = 0;
  };
  [[nodiscard]] Place place(std::int64_t position) const;
  /// How many of the first `positions` positions the source has.
  [[nodiscard]] std::int64_t count(std::size_t source, std::int64_t positions) const;
  [[nodiscard]] const std::vector<std::int64_t>& slots() const { return slots_; }

 private:
  std::vector<std::int64_t> slots_;
  std::vector<Place> table_;  ///< by slot
};

}  // namespace kozero
