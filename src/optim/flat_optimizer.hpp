// SPDX-FileCopyrightText: The KoZeRO authors
// SPDX-License-Identifier: Apache-2.0
// flat_optimizer.hpp: the base of elementwise optimizers: their states, and the loop over the segments that a part of
// the flat array touches. A derived optimizer takes its states with take_state() in its constructor and updates several
// runs of elements, with and without weight decay, at a time.
#pragma once
#include <memory>
#include <string>
#include <vector>

#include <kozero/optim/optimizer.hpp>
#include "kernels/launch/update_elements.hpp"

namespace kozero::optim {

template <class Scalar>
class FlatOptimizer : public Optimizer<Scalar> {
 public:
  void update(std::int64_t first, const Target<Scalar>& target, Vector<const float> gradient, const Step& step) final;
  [[nodiscard]] std::vector<NamedState> states() const final { return states_; }

 protected:
  /// The segments must be ascending, start at 0 and leave no gap.
  FlatOptimizer(std::vector<Segment> segments, MemoryLedger& ledger, MemorySource* memory);

  /// Takes a zeroed state over the whole flat array.
  Vector<float> take_state(const std::string& name);
  /// Calls update(space) with Host if the states lie in host memory, else with Device.
  template <class Update>
  void run_where_states_lie(const Update& update) const {
    if (memory_ != nullptr && memory_->kind() == MemorySource::Kind::host) {
      update(Host());
    } else {
      update(Device());
    }
  }

 private:
  /// Updates flat elements [first, first + target.master.extent(0)), which `runs` covers.
  virtual void update_runs(std::int64_t first, const Target<Scalar>& target, Vector<const float> gradient,
                           const kernels::UpdateRuns& runs, const Step& step) = 0;

  std::vector<Segment> segments_;
  std::int64_t extent_ = 0;
  MemoryLedger& ledger_;
  MemorySource* memory_;
  std::vector<NamedState> states_;
};

// One maker per optimizer, each defined in the optimizer's file.
template <class Scalar>
std::unique_ptr<Optimizer<Scalar>> make_adamw(const Config&, std::vector<Segment>, MemoryLedger&, MemorySource*);
template <class Scalar>
std::unique_ptr<Optimizer<Scalar>> make_sgd(const Config&, std::vector<Segment>, MemoryLedger&, MemorySource*);

}  // namespace kozero::optim
