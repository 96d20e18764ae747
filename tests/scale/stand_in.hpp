// SPDX-FileCopyrightText: The KoZeRO authors
// SPDX-License-Identifier: Apache-2.0
// stand_in.hpp: a rank's training steps in the trainer's order on a real ShardedState, with a mock model that advances
// the clock instead of computing.
//   forward   a third of a pass's seconds, backward two thirds, divided among the units by their numbers of elements
// After the last micro-step: the norm, the losses of all ranks, the update, and the weights' publication, as in
// src/train/trainer.cpp.
#pragma once
#include <vector>

#include <kozero/zero/sharded_state.hpp>

namespace kozero::scale {

/// Simulated seconds of the mock model.
struct Work {
  double passes_s = 0.0;  ///< forward and backward of all micro-steps
  double update_s = 0.0;
  int micro_steps = 1;
};

class StandIn {
 public:
  StandIn(const ParameterTable& table, distributed::Communicator& comm, zero::ShardedState<float>& state, Work work);

  /// One training step.
  void step();

 private:
  [[nodiscard]] double seconds_of(int unit) const;
  void forward();
  void head();
  void backward();
  void gather_losses();

  const ParameterTable& table_;
  distributed::Communicator& comm_;
  zero::ShardedState<float>& state_;
  Work work_;
  int head_;               // its unit
  bool head_reads_first_;  // the head multiplies with unit 0
};

}  // namespace kozero::scale
