// SPDX-FileCopyrightText: The KoZeRO authors
// SPDX-License-Identifier: Apache-2.0
// state_check.cpp: hashes of state and copies, their comparison over ranks, and the text that names what changed.
#include <fmt/format.h>
#include <algorithm>
#include <map>
#include <vector>

#include <kozero/core/disk_memory.hpp>
#include <kozero/core/error.hpp>
#include <kozero/distributed/agreement.hpp>
#include "kernels/launch/reduce.hpp"
#include "src/train/disk_check.hpp"
#include "src/train/state_check.hpp"

namespace kozero::train {
namespace {

std::uint64_t hash_of(const zero::RestingArray& array) {
  const std::uint64_t hash = kernels::bit_hash(Device(), array.words);
  release_pages(array.words);
  return hash;
}

/// `good`: no checkpoint of this step or an earlier one has the change.
[[noreturn]] void refuse(std::int64_t step, const std::string& what, std::int64_t good) {
  const std::string way_out =
      good > 0 ? fmt::format("resume from a checkpoint of step {} or earlier: later ones may have the change", good)
               : std::string("begin anew: every checkpoint may have the change");
  throw Error(Failure::internal,
              fmt::format("step {}: {}; the step was not applied. A rank stores or computes wrongly: check that "
                          "machine's memory, and {}",
                          step, what, way_out),
              Error::Seen::by_all_ranks);
}

/// `ranks_with`: the ranks with each hash, at least two hashes. `others`: the name of the other holders of the array.
std::string text_of_difference(const std::string& name, const std::map<std::uint64_t, std::vector<int>>& ranks_with,
                               const char* others) {
  std::size_t ranks = 0;
  for (const auto& [hash, with] : ranks_with) ranks += with.size();
  const auto fewer = [](const auto& a, const auto& b) { return a.second.size() < b.second.size(); };
  const auto [fewest, most] = std::minmax_element(ranks_with.begin(), ranks_with.end(), fewer);
  const auto [low, high] = std::minmax(fewest->second.front(), most->second.front());
  return 2 * most->second.size() > ranks
             ? fmt::format("{} on rank {} is not that of the other {}", name, fewest->second.front(), others)
             : fmt::format("{} differs between rank {} and rank {}", name, low, high);
}

}  // namespace

template <class Scalar>
StateCheck<Scalar>::StateCheck(const ParameterTable& table, zero::ShardedState<Scalar>& state,
                               const optim::Optimizer<Scalar>& optimizer)
    : table_(table),
      state_(state),
      mesh_(state.weights().master().mesh()),
      comm_(mesh_.all()),
      arrays_(state.weights().at_rest()) {
  const bool whole = state.updates_whole_units();
  for (const auto& owned : state.update_ranges()) {
    const UnitRange& range = owned.range;
    for (const auto& moment : optimizer.states()) {
      const auto mine = slice(moment.values, range.first, range.extent);
      arrays_.push_back({moment.name, range.unit, words_of(mine), whole});
    }
    if (whole) {
      whole_gradients_.push_back({"gradient", range.unit, words_of(state.gradients().full(range.unit)), true});
    }
  }
}

template <class Scalar>
std::vector<std::uint64_t> StateCheck<Scalar>::hashes() const {
  std::vector<std::uint64_t> all;
  for (const auto& array : arrays_) all.push_back(hash_of(array));
  return all;
}

template <class Scalar>
void StateCheck<Scalar>::record() {
  recorded_hashes_ = hashes();
  std::vector<std::uint64_t> shards;  // by unit
  for (std::size_t i = 0; i < arrays_.size(); ++i) {
    if (arrays_[i].name == zero::kWeightsName && !arrays_[i].replicated) shards.push_back(recorded_hashes_[i]);
  }
  if (!shards.empty()) {
    const auto all = distributed::from_all_ranks(mesh_.group(), shards);
    const auto ranks = static_cast<std::size_t>(mesh_.group().size());
    std::vector<std::uint64_t> owners(shards.size() * ranks);
    for (std::size_t i = 0; i < owners.size(); ++i) {
      const std::size_t rank = i / shards.size();
      owners[i % shards.size() * ranks + rank] = all[i];
    }
    state_.weights().watch_copies(owners);
  }
  state_.gradients().watch(true);
  recorded_ = true;
}

template <class Scalar>
void StateCheck<Scalar>::discard() {
  state_.weights().watch_copies({});
  state_.gradients().watch(false);
  recorded_ = false;
}

template <class Scalar>
std::string StateCheck<Scalar>::name_of(const zero::RestingArray& array) const {
  return fmt::format("the {} of {}", array.name, table_.unit(array.unit).name);
}

template <class Scalar>
void StateCheck<Scalar>::compare(std::int64_t step) {
  require(recorded_, "StateCheck: nothing was recorded");
  const std::vector<std::uint64_t> now = hashes();
  const auto changed = std::mismatch(now.begin(), now.end(), recorded_hashes_.begin()).first - now.begin();
  std::string disk;
  std::string mine;  // a fault in this rank's own memory
  std::string copy;  // a fault in received data: reported after all owners' own faults
  if (const std::string unit = state_.gradients().first_changed(); !unit.empty()) {
    mine = fmt::format("the gradient of {} on rank {} changed in this step where nothing wrote", unit, comm_.rank());
  }
  if (const std::string unit = state_.weights().first_wrong_copy(); !unit.empty()) {
    copy = fmt::format("the gathered weights of {} on rank {} are not their owners'", unit, comm_.rank());
  }
  if (changed < static_cast<std::ptrdiff_t>(now.size())) {
    const auto& array = arrays_[static_cast<std::size_t>(changed)];
    mine = fmt::format("{} on rank {} changed after the update of step {} where nothing wrote", name_of(array),
                       comm_.rank(), step - 1);
    if (!name_on_disk(array.words.data()).empty()) disk = text_of_change(array.words);
  }
  for (const auto& text : distributed::gather_text(comm_, disk)) {
    if (!text.empty()) throw Error(Failure::input, text, Error::Seen::by_all_ranks);
  }
  for (const auto& found : {mine, copy}) {
    for (const auto& text : distributed::gather_text(comm_, found)) {
      if (!text.empty()) refuse(step, text, step - 2);
    }
  }
  compare_replicas(step, now);
  last_good_ = step - 1;
}

template <class Scalar>
void StateCheck<Scalar>::compare_replicas(std::int64_t step, const std::vector<std::uint64_t>& hashes) const {
  std::vector<zero::RestingArray> arrays;
  std::vector<std::uint64_t> mine;
  for (std::size_t i = 0; i < arrays_.size(); ++i) {
    if (!arrays_[i].replicated && mesh_.num_groups() == 1) continue;
    arrays.push_back(arrays_[i]);
    mine.push_back(hashes[i]);
  }
  for (const auto& gradient : whole_gradients_) {
    arrays.push_back(gradient);
    mine.push_back(hash_of(gradient));
  }
  const auto all = distributed::from_all_ranks(comm_, mine);
  for (std::size_t i = 0; i < mine.size(); ++i) {
    // Of a replicated array, all ranks hold the same; of a sharded array, the ranks with equal index in their groups.
    const int stride = arrays[i].replicated ? 1 : mesh_.group().size();
    for (int first = 0; first < stride; ++first) {
      std::map<std::uint64_t, std::vector<int>> ranks_with;
      for (int rank = first; rank < comm_.size(); rank += stride) {
        ranks_with[all[static_cast<std::size_t>(rank) * mine.size() + i]].push_back(rank);
      }
      if (ranks_with.size() > 1) {
        refuse(step, text_of_difference(name_of(arrays[i]), ranks_with, arrays[i].replicated ? "ranks" : "groups"),
               last_good_);
      }
    }
  }
}

#define KOZERO_INSTANTIATE(T) template class StateCheck<T>;
KOZERO_FOR_STORED_TYPES(KOZERO_INSTANTIATE)

}  // namespace kozero::train
