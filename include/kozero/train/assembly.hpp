// SPDX-FileCopyrightText: The KoZeRO authors
// SPDX-License-Identifier: Apache-2.0
// assembly.hpp: the parts of a run, put together once for training, planning, verifying, evaluating and generating.
// With a planning ledger and a planned communicator nothing is allocated or sent: the ledger then is the plan.
#pragma once
#include <memory>

#include <kozero/train/settings.hpp>
#include <kozero/train/staging.hpp>

namespace kozero::train {

class Assembly {
 public:
  /// Takes all memory of a run from `ledger`. Weights are zero until initialise() or a file is read into them.
  Assembly(const Settings& settings, dist::Communicator& comm, MemoryLedger& ledger);

  [[nodiscard]] Parts parts() { return Parts{*network_, *state_, *optimizer_, comm_, timeline_}; }
  [[nodiscard]] model::Network& network() { return *network_; }
  [[nodiscard]] zero::ShardedState& state() { return *state_; }
  [[nodiscard]] BatchLoader& loader() { return *loader_; }
  [[nodiscard]] Timeline& timeline() { return timeline_; }
  /// nullptr where saving is synchronous.
  [[nodiscard]] Staging* staging() { return staging_.get(); }

 private:
  /// Makes network and state with weights of this type.
  template <class Scalar>
  void store_weights_as(const Settings& settings, MemoryLedger& ledger);

  dist::Communicator& comm_;
  Timeline timeline_;
  std::unique_ptr<zero::ShardedState> state_;
  std::unique_ptr<model::Network> network_;  // behind what it reads
  std::unique_ptr<optim::Optimizer> optimizer_;
  std::unique_ptr<BatchLoader> loader_;
  std::unique_ptr<Staging> staging_;
};

}  // namespace kozero::train
