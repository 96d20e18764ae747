// SPDX-FileCopyrightText: The KoZeRO authors
// SPDX-License-Identifier: Apache-2.0
// unsaved_run.hpp: a deck's training steps and nothing else: no evaluation, no checkpoint, no file of a run. For
// verifying and measuring.
#pragma once
#include <optional>

#include <kozero/dist/counted_communicator.hpp>
#include <kozero/io/checkpoint_folders.hpp>
#include <kozero/train/assembly.hpp>
#include <kozero/train/data_set.hpp>

#include "session.hpp"

namespace kozero::commands {

/// The deck's data, its samples checked against the deck's model. Collective.
train::DataSet open_data_of(const io::Deck& deck, dist::Communicator& comm);

class UnsavedRun {
 public:
  /// `deck` is the session's but for values that the caller changed. `data` outlives it. With `start` it goes on from
  /// that checkpoint, which was verified. Throws as require_room() does. Collective.
  UnsavedRun(Session& session, io::Deck deck, const train::DataSet& data,
             const std::optional<io::FoundCheckpoint>& start = std::nullopt);

  train::StepResult step(std::int64_t step) { return trainer_->step(step); }
  [[nodiscard]] train::Assembly& assembly() { return *assembly_; }
  [[nodiscard]] dist::CountedCommunicator& comm() { return *comm_; }
  [[nodiscard]] const train::Settings& settings() const { return settings_; }

 private:
  train::Settings settings_;
  MemoryLedger ledger_;
  std::unique_ptr<dist::CountedCommunicator> comm_;
  std::optional<train::Assembly> assembly_;
  std::optional<train::Sampler> sampler_;
  std::optional<train::Trainer> trainer_;
};

}  // namespace kozero::commands
