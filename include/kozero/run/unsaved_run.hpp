// SPDX-FileCopyrightText: The KoZeRO authors
// SPDX-License-Identifier: Apache-2.0
// unsaved_run.hpp: a deck's training steps without evaluation, checkpoints or files, and the replay of one step of a
// run. `verify` and the benchmarks run the steps. A replay computes a step again from the newest complete checkpoint
// before it, or from the run's beginning. It compares losses and gradient norms with metrics.jsonl, and tensors with
// the checkpoint after the step, if any, bit for bit. A difference shows wrong hardware, or changed data or a changed
// program.
#pragma once
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include <kozero/data/data_set.hpp>
#include <kozero/distributed/communicator_decorators.hpp>
#include <kozero/distributed/environment.hpp>
#include <kozero/run/engine_on_ranks.hpp>
#include <kozero/run/session.hpp>
#include <kozero/train/settings.hpp>
#include "io/checkpoint/checkpoint.hpp"

namespace kozero::run {

/// The deck's data, its samples checked against the deck's model. Collective.
data::DataSet open_data_of(const io::Deck& deck, distributed::Communicator& comm);

/// A tensor of the state: "parameters/wte.weight", "optimizer/exp_avg/wte.weight".
struct HashedTensor {
  std::string name;
  std::uint64_t hash = 0;
};

/// Hashes of the bits of all weights and moments, equal under every placement and number of ranks. Collective.
std::vector<HashedTensor> state_hashes(train::Engine& engine);

class UnsavedRun {
 public:
  /// `deck` is the session's, except for values that the caller changed. `data` must outlive the object. With `start`
  /// the run continues from that verified checkpoint. Throws like require_room(). Collective.
  UnsavedRun(Session& session, io::Deck deck, const data::DataSet& data,
             const std::optional<io::FoundCheckpoint>& start = std::nullopt);

  train::StepResult step(std::int64_t step) { return engine().step(step); }
  [[nodiscard]] train::Engine& engine() { return on_ranks_.engine(); }
  [[nodiscard]] distributed::MeshCommunicators& mesh() { return on_ranks_.mesh(); }
  [[nodiscard]] const MemoryLedger& ledger() const { return on_ranks_.ledger(); }
  [[nodiscard]] const train::Settings& settings() const { return settings_; }

 private:
  train::Settings settings_;
  EngineOnRanks on_ranks_;
  std::optional<data::Sampler> sampler_;
};

/// `overrides` change the run's deck. Writes nothing but token shards of data.text. Collective. Throws Error(internal,
/// seen by all ranks) naming the first difference; Error(input) if the run or the step does not exist; Error(deck) if
/// the run had another rank count and its bits depend on it: local accumulation, sums by NCCL, a batch that grows with
/// the ranks.
void replay(const distributed::Environment& environment, const std::string& run,
            const std::vector<std::string>& overrides, std::int64_t step);

/// The rank count of the run's last start, from its ranks.json or its deck; 0 if unknown. Throws Error(deck or input).
std::int64_t ranks_of_run(const std::string& run);

}  // namespace kozero::run
