// SPDX-FileCopyrightText: The KoZeRO authors
// SPDX-License-Identifier: Apache-2.0
// trained_model.hpp: a finished run's model with its weights, for evaluation and generation.
#pragma once
#include <memory>

#include <kozero/train/batch_loader.hpp>
#include <kozero/train/settings.hpp>
#include <kozero/train/trained_weights.hpp>
#include <kozero/zero/frozen_weights.hpp>

#include "session.hpp"

namespace kozero::commands {

class TrainedModel {
 public:
  /// Reads the run that `path` names, with its deck changed by `overrides`.
  /// Collective. Throws Error, seen by all ranks.
  TrainedModel(const std::string& path, const std::vector<std::string>& overrides,
               const dist::Environment& environment);

  [[nodiscard]] Session& session() { return session_; }
  [[nodiscard]] const train::TrainedRun& run() const { return run_; }
  [[nodiscard]] const train::Settings& settings() const { return settings_; }
  [[nodiscard]] const io::WeightsDescription& description() const { return description_; }
  [[nodiscard]] model::Model<float>& model() { return *model_; }
  [[nodiscard]] ParameterAccess<float>& access() { return *weights_; }
  [[nodiscard]] dist::Communicator& comm() { return *comm_; }
  [[nodiscard]] MemoryLedger& ledger() { return ledger_; }

 private:
  train::TrainedRun run_;
  Session session_;
  train::Settings settings_;
  MemoryLedger ledger_;
  std::unique_ptr<dist::Communicator> comm_;
  std::unique_ptr<model::Model<float>> model_;
  std::unique_ptr<zero::FrozenWeights> weights_;
  io::WeightsDescription description_;
};

}  // namespace kozero::commands
