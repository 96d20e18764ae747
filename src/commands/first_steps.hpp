// SPDX-FileCopyrightText: The KoZeRO authors
// SPDX-License-Identifier: Apache-2.0
// first_steps.hpp: a deck's first training steps, with no run's folder: what is compared or timed.
#pragma once
#include <memory>
#include <vector>

#include <kozero/train/assembly.hpp>
#include <kozero/train/data_set.hpp>
#include <kozero/train/trainer.hpp>

#include "session.hpp"

namespace kozero::commands {

class FirstSteps {
 public:
  /// Takes the memory and begins the weights. Collective. `data` outlives it.
  FirstSteps(const train::Settings& settings, const train::DataSet& data, const Session& session);

  train::StepResult next() { return trainer_.step(++step_); }
  /// By rank, of its slices.
  [[nodiscard]] std::vector<double> weight_hashes();

 private:
  MemoryLedger ledger_;
  std::unique_ptr<dist::Communicator> comm_;
  train::Assembly assembly_;
  train::Sampler sampler_;
  train::Trainer trainer_;
  std::int64_t step_ = 0;
};

}  // namespace kozero::commands
