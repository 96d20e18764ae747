// SPDX-FileCopyrightText: The KoZeRO authors
// SPDX-License-Identifier: Apache-2.0
// flat_optimizer.hpp: what all optimizers here share: the walk over the segments that a part of the flat array touches.
// A kind of optimizer derives from it, takes its states with take_state() in its constructor, and updates a part with
// all its runs of equal flags at a time.
#pragma once
#include <string>
#include <vector>

#include <kozero/kernels/update_elements.hpp>
#include <kozero/optim/optimizer.hpp>

namespace kozero::optim {

class FlatOptimizer : public Optimizer {
 public:
  void update(std::int64_t first, const Target& target, Vector<const float> gradient, const Step& step) final;
  [[nodiscard]] std::vector<NamedState> states() const final { return states_; }

 protected:
  /// The segments must be ascending, start at 0 and leave no gap.
  FlatOptimizer(std::vector<Segment> segments, MemoryLedger& ledger);

  /// Takes a zeroed state over the whole flat array.
  Vector<float> take_state(const std::string& name);

 private:
  /// Updates flat elements [first, first + target.master.extent(0)), which are `runs`.
  virtual void update_runs(std::int64_t first, const Target& target, Vector<const float> gradient,
                           const kernels::UpdateRuns& runs, const Step& step) = 0;

  std::vector<Segment> segments_;
  std::int64_t extent_ = 0;
  MemoryLedger& ledger_;
  std::vector<NamedState> states_;
};

}  // namespace kozero::optim
