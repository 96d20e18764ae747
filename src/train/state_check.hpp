// SPDX-FileCopyrightText: The KoZeRO authors
// SPDX-License-Identifier: Apache-2.0
// state_check.hpp: detects changes of a run's state that no code wrote.
//   after the update of step s-1:  record()     64 bits of each unit's weights, master weights and moments on this rank
//   in step s:                     at its release, a gathered unit is compared with its owners' hashes; a gradient at
//                                  rest, between micro-steps or reduced, is compared with its hash at its last write
//   before the update of step s:   compare(s)   compares all hashes again, and arrays that ranks replicate across ranks
// Not detected: a change between a value's last write and its hash, or within a kernel; a change of a gradient's addend
// before its reduction, since the addend has no second copy; changes of activations. A checked step costs two more
// passes over the state (about 13 GB/s per core), so only every run.check_every-th step is checked. Changes before the
// preceding step are not detected, except in arrays that ranks replicate, since their replicas keep differing.
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
  /// Drops the recorded hashes, since the state is about to change.
  void discard();
  /// Collective. Throws Error(internal, seen by all ranks) naming the array, the unit and the rank of the first change,
  /// and the last step whose checkpoint cannot have it; Error(input) if the array is on a disk (disk_check.hpp).
  void compare(std::int64_t step);

 private:
  [[nodiscard]] std::vector<std::uint64_t> hashes() const;
  void compare_replicas(std::int64_t step, const std::vector<std::uint64_t>& hashes) const;
  [[nodiscard]] std::string name_of(const zero::RestingArray& array) const;

  const ParameterTable& table_;
  zero::ShardedState<Scalar>& state_;
  const distributed::Mesh& mesh_;
  distributed::Communicator& comm_;  // of all ranks
  std::vector<zero::RestingArray> arrays_;
  std::vector<zero::RestingArray> whole_gradients_;  // replicated on all ranks
  std::vector<std::uint64_t> recorded_hashes_;       // one per array
  std::int64_t last_good_ = 0;                       // the step whose state passed the last comparison of replicas
  bool recorded_ = false;
};

}  // namespace kozero::train
