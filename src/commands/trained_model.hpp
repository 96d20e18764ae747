// SPDX-FileCopyrightText: The KoZeRO authors
// SPDX-License-Identifier: Apache-2.0
// trained_model.hpp: a model with its trained weights, in f32, for evaluation and generation.
#pragma once
#include <memory>

#include <kozero/model/network.hpp>
#include <kozero/train/batch_loader.hpp>
#include <kozero/train/settings.hpp>
#include <kozero/zero/frozen_weights.hpp>

#include "session.hpp"
#include "weights_source.hpp"

namespace kozero::commands {

class TrainedModel {
 public:
  /// Evaluation reserves the activations of a batch; generation leaves it to the cache's user to reserve.
  enum class Use { evaluation, generation };

  /// Reads the weights that `path` names (weights_source.hpp), with their deck changed by `overrides`.
  /// Collective. Throws Error, seen by all ranks.
  TrainedModel(const std::string& path, const std::vector<std::string>& overrides,
               const dist::Environment& environment, Use use = Use::evaluation);

  [[nodiscard]] Session& session() { return session_; }
  [[nodiscard]] const io::Deck& deck() const { return session_.deck(); }
  [[nodiscard]] const WeightsSource& source() const { return source_; }
  [[nodiscard]] const train::Settings& settings() const { return settings_; }
  [[nodiscard]] model::Network& network() { return *network_; }
  [[nodiscard]] dist::Communicator& comm() { return *comm_; }
  [[nodiscard]] MemoryLedger& ledger() { return ledger_; }

  /// Throws Error(deck) where a tokenizer has more ids than the model.
  void accept_vocabulary(std::int64_t ids) const;

 private:
  WeightsSource source_;
  Session session_;
  train::Settings settings_;
  MemoryLedger ledger_;
  std::unique_ptr<dist::Communicator> comm_;
  std::unique_ptr<zero::FrozenWeights> weights_;
  std::unique_ptr<model::Network> network_;  // behind what it reads
};

}  // namespace kozero::commands
