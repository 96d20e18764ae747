// SPDX-FileCopyrightText: The KoZeRO authors
// SPDX-License-Identifier: Apache-2.0
// flat_optimizer.cpp: states over the flat array, and the runs of one rate that one kernel updates.
#include <algorithm>

#include <kozero/core/error.hpp>
#include "src/optim/flat_optimizer.hpp"

namespace kozero::optim {

template <class Scalar>
FlatOptimizer<Scalar>::FlatOptimizer(std::vector<Segment> segments, MemoryLedger& ledger, MemorySource* memory)
    : segments_(std::move(segments)), ledger_(ledger), memory_(memory) {
  for (const Segment& segment : segments_) {
    require(segment.first == extent_ && segment.extent >= 0, "optimizer: the segments leave a gap or overlap");
    extent_ += segment.extent;
  }
}

template <class Scalar>
Vector<float> FlatOptimizer<Scalar>::take_state(const std::string& name) {
  states_.push_back({name, memory_ != nullptr ? ledger_.take<float>(Memory::optimizer, name, extent_, *memory_)
                                              : ledger_.take<float>(Memory::optimizer, name, extent_)});
  return states_.back().values;
}

template <class Scalar>
void FlatOptimizer<Scalar>::update(std::int64_t first, const Target<Scalar>& target, Vector<const float> gradient,
                                   const Step& step) {
  const std::int64_t end = first + static_cast<std::int64_t>(target.master.extent(0));
  require(gradient.extent(0) == target.master.extent(0), "optimizer: weights and gradient differ in extent");
  require(first >= 0 && end <= extent_, "optimizer: the part is outside the flat array");
  const auto touched = std::partition_point(segments_.begin(), segments_.end(), [first](const Segment& segment) {
    return segment.first + segment.extent <= first;
  });
  kernels::UpdateRuns runs;
  std::int64_t begin = first;  // first element of `runs`
  for (auto segment = touched; segment != segments_.end() && segment->first < end; ++segment) {
    const std::int64_t behind = std::min(end, segment->first + segment->extent);
    runs.add(behind - begin, segment->decay);
    const bool is_last = behind == end;
    const bool goes_on = !is_last && runs.count < kernels::UpdateRuns::kMost && (segment + 1)->rate == segment->rate;
    if (goes_on) continue;
    Step at_rate = step;
    at_rate.lr *= segment->rate;
    update_runs(begin, target.part(begin - first, behind - begin), slice(gradient, begin - first, behind - begin), runs,
                at_rate);
    runs = {};
    begin = behind;
  }
}

#define KOZERO_INSTANTIATE(T) template class FlatOptimizer<T>;
KOZERO_FOR_STORED_TYPES(KOZERO_INSTANTIATE)

}  // namespace kozero::optim
