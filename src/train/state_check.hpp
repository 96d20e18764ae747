// SPDX-FileCopyrightText: The KoZeRO authors
// SPDX-License-Identifier: Apache-2.0
// state_check.hpp: finds bits of a run's state that changed where nothing wrote.
//   after the update of step s-1:  record()     64 bits of each unit's weights, master weights and moments on this rank
//   in step s:                     a gathered unit is held to its owners' hashes when it is released; a gradient that
//                                  rests, between micro-steps or reduced, to the hash it had when it was left
//   before the update of step s:   compare(s)   all of them again, and the hashes of what all ranks hold alike
// What is not found: a change between a value's last write and its hash, or within a kernel; a gradient's addend before
// it is reduced, which has no second copy; activations. A step costs two passes over the state more (about 13 GB/s a
// core), so it is done every run.check_every steps: only changes between the step before and such a step are found, but
// those of what all ranks hold alike stay, and are found later too.
#pragma once
#include <string>
#include <vector>

#include <kozero/optim/optimizer.hpp>
#include <kozero/zero/sharded_state.hpp>

namespace kozero::train {

template <class Scalar>
class StateCheck {
 public:
  StateCheck(const ParameterTable& table, zero::ShardedState<Scalar>& state, const optim::Optimizer<Scalar>& optimizer);

  /// Collective.
  void record();
  [[nodiscard]] bool recorded() const { return recorded_; }
  /// Drops what was recorded: the state is about to change.
  void discard();
  /// Collective. Throws Error(internal, seen by all ranks) naming the array, the unit and the rank of the first change.
  void compare(std::int64_t step);

 private:
  [[nodiscard]] std::vector<std::uint64_t> hashes() const;
  void compare_replicas(std::int64_t step, const std::vector<std::uint64_t>& hashes) const;
  [[nodiscard]] std::string name_of(const zero::RestingArray& array) const;

  const ParameterTable& table_;
  zero::ShardedState<Scalar>& state_;
  const dist::Mesh& mesh_;
  dist::Communicator& comm_;  // of all ranks
  std::vector<zero::RestingArray> arrays_;
  std::vector<zero::RestingArray> whole_gradients_;  // those that all ranks hold alike
  std::vector<std::uint64_t> recorded_hashes_;       // by array
  bool recorded_ = false;
};

}  // namespace kozero::train
