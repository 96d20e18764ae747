// SPDX-FileCopyrightText: The KoZeRO authors
// SPDX-License-Identifier: Apache-2.0
#include "flat_optimizer.hpp"

#include <algorithm>

#include <kozero/core/error.hpp>

namespace kozero::optim {
namespace {

kernels::UpdateRuns::Kind kind_of(const Segment& segment) {
  using Kind = kernels::UpdateRuns::Kind;
  if (segment.frozen) return Kind::frozen;
  return segment.decay ? Kind::decays : Kind::keeps;
}

}  // namespace

FlatOptimizer::FlatOptimizer(std::vector<Segment> segments, MemoryLedger& ledger)
    : segments_(std::move(segments)), ledger_(ledger) {
  for (const Segment& segment : segments_) {
    require(segment.first == extent_ && segment.extent >= 0, "optimizer: the segments leave a gap or overlap");
    extent_ += segment.extent;
  }
}

Vector<float> FlatOptimizer::take_state(const std::string& name) {
  states_.push_back(NamedState{name, ledger_.take<float>(Memory::optimizer, name, extent_)});
  return states_.back().values;
}

void FlatOptimizer::update(std::int64_t first, const Target& target, Vector<const float> gradient, const Step& step) {
  const std::int64_t end = first + static_cast<std::int64_t>(target.master.extent(0));
  require(gradient.extent(0) == target.master.extent(0), "optimizer: weights and gradient differ in extent");
  require(first >= 0 && end <= extent_, "optimizer: the part lies outside the flat array");
  const auto touched = std::partition_point(segments_.begin(), segments_.end(), [first](const Segment& segment) {
    return segment.first + segment.extent <= first;
  });
  kernels::UpdateRuns runs;
  std::int64_t begin = first;  // of the runs
  for (auto segment = touched; segment != segments_.end() && segment->first < end; ++segment) {
    const std::int64_t behind = std::min(end, segment->first + segment->extent);
    runs.add(behind - begin, kind_of(*segment));
    if (behind < end && runs.count < kernels::UpdateRuns::kMost) continue;
    update_runs(begin, target.part(begin - first, behind - begin), slice(gradient, begin - first, behind - begin), runs,
                step);
    runs = {};
    begin = behind;
  }
}

}  // namespace kozero::optim
