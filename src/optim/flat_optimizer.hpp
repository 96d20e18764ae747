// SPDX-FileCopyrightText: The KoZeRO authors
// SPDX-License-Identifier: Apache-2.0
// flat_optimizer.hpp: the base of all optimizers, and the function that makes each of them.
// The base walks over the segments of a part of the flat array. An optimizer derives from it, takes its states in its
// constructor, and updates one part with all its runs of equal decay at a time.
#pragma once
#include <memory>
#include <string>
#include <vector>

#include <kozero/optim/optimizer.hpp>
#include "kernels/launch/update_elements.hpp"

namespace kozero::optim {

// What all optimizers here share: the walk over the segments that a part of the flat array touches.
// A kind of optimizer derives from it, takes its states with take_state() in its constructor, and updates a part with
// all its runs of equal flags at a time.

template <class Scalar>
class FlatOptimizer : public Optimizer<Scalar> {
 public:
  void update(std::int64_t first, const Target<Scalar>& target, Vector<const float> gradient, const Step& step) final;
  [[nodiscard]] std::vector<NamedState> states() const final { return states_; }

 protected:
  /// The segments must be ascending, start at 0 and leave no gap.
  FlatOptimizer(std::vector<Segment> segments, MemoryLedger& ledger);

  /// Takes a zeroed state over the whole flat array.
  Vector<float> take_state(const std::string& name);

 private:
  /// Updates flat elements [first, first + target.master.extent(0)), which are `runs`.
  virtual void update_runs(std::int64_t first, const Target<Scalar>& target, Vector<const float> gradient,
                           const kernels::UpdateRuns& runs, const Step& step) = 0;

  std::vector<Segment> segments_;
  std::int64_t extent_ = 0;
  MemoryLedger& ledger_;
  std::vector<NamedState> states_;
};

// The optimizers there are: each file defines one maker, and make_optimizer's table names it.

/// Adam with decoupled weight decay. States: exp_avg, exp_avg_sq.
template <class Scalar>
std::unique_ptr<Optimizer<Scalar>> make_adamw(const Config& config, std::vector<Segment> segments,
                                              MemoryLedger& ledger);

/// Gradient descent with momentum. State: momentum_buffer.
template <class Scalar>
std::unique_ptr<Optimizer<Scalar>> make_sgd(const Config& config, std::vector<Segment> segments, MemoryLedger& ledger);

}  // namespace kozero::optim
