// SPDX-FileCopyrightText: The KoZeRO authors
// SPDX-License-Identifier: Apache-2.0
// mixture.cpp: the slots of a mixture's sources, and the table that orders them.
#include <algorithm>
#include <cmath>
#include <numeric>

#include <kozero/core/error.hpp>
#include <kozero/core/mixture.hpp>

namespace kozero {

std::vector<std::int64_t> mixture_slots(const std::vector<double>& weights) {
  const double sum = std::accumulate(weights.begin(), weights.end(), 0.0);
  std::vector<std::int64_t> slots;
  std::vector<double> remainders;
  for (const double weight : weights) {
    const double share = weight / sum * static_cast<double>(kMixtureSlots);
    slots.push_back(static_cast<std::int64_t>(share));
    remainders.push_back(share - static_cast<double>(slots.back()));
  }
  std::vector<std::size_t> order(weights.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  std::stable_sort(order.begin(), order.end(), [&](auto a, auto b) { return remainders[a] > remainders[b]; });
  std::int64_t rest = kMixtureSlots - std::accumulate(slots.begin(), slots.end(), std::int64_t{0});
  for (std::size_t i = 0; rest > 0; i = (i + 1) % order.size(), --rest) ++slots[order[i]];
  return slots;
}

Mixture::Mixture(const std::vector<double>& weights) : slots_(mixture_slots(weights)) {
  require(std::ranges::all_of(slots_, [](std::int64_t slots) { return slots > 0; }), "Mixture: a source has no slot");
  std::vector<std::int64_t> given(slots_.size(), 0);
  for (std::int64_t t = 0; t < kMixtureSlots; ++t) {
    std::size_t next = 0;
    std::int64_t earliest = INT64_MAX;
    for (std::size_t i = 0; i < slots_.size(); ++i) {
      if (given[i] * kMixtureSlots >= (t + 1) * slots_[i]) continue;
      const std::int64_t deadline = ((given[i] + 1) * kMixtureSlots + slots_[i] - 1) / slots_[i];
      if (deadline < earliest) {
        earliest = deadline;
        next = i;
      }
    }
    table_.push_back({next, given[next]++});
  }
}

Mixture::Place Mixture::place(std::int64_t position) const {
  Place place = table_[static_cast<std::size_t>(position % kMixtureSlots)];
  place.index += position / kMixtureSlots * slots_[place.source];
  return place;
}

std::int64_t Mixture::count(std::size_t source, std::int64_t positions) const {
  const auto in_part = std::count_if(table_.begin(), table_.begin() + positions % kMixtureSlots,
                                     [&](const Place& place) { return place.source == source; });
  return positions / kMixtureSlots * slots_[source] + in_part;
}

}  // namespace kozero
