// SPDX-FileCopyrightText: The KoZeRO authors
// SPDX-License-Identifier: Apache-2.0
// engine_on_ranks.hpp: the memory check of every command that computes, the engine, and the memory that it uses.
#pragma once
#include <cstdint>
#include <functional>
#include <memory>
#include <string>

#include <kozero/core/ledger.hpp>
#include <kozero/distributed/make_communicator.hpp>
#include <kozero/plan/memory_plan.hpp>
#include <kozero/run/session.hpp>
#include <kozero/train/engine.hpp>
#include <kozero/train/settings.hpp>

namespace kozero::run {

/// The plan of an engine for `settings`. Throws Error(deck), seen by all ranks, if some rank has less room: with the
/// bytes, the largest category and a remedy. If the system does not report its memory, nothing is rejected. Collective.
plan::MemoryPlan require_room(Session& session, const train::Settings& settings, std::int64_t data_vocab);

/// The same for `bytes` of further arrays. `what` is their name: "the cache for 8 x 1024 tokens". Collective.
void require_room_for(std::int64_t bytes, const std::string& what, const std::string& remedy, Session& session);

/// An engine or evaluator with its memory and its communicators.
class EngineOnRanks {
 public:
  /// Plans, requires room, connects the ranks, then allocates. `connected` runs before the allocation.
  /// Collective. Throws Error, seen by all ranks.
  EngineOnRanks(Session& session, const train::Settings& settings, std::int64_t data_vocab,
                const std::function<void()>& connected = {});

  [[nodiscard]] const plan::MemoryPlan& plan() const { return plan_; }
  [[nodiscard]] MemoryLedger& ledger() { return ledger_; }
  [[nodiscard]] const MemoryLedger& ledger() const { return ledger_; }
  [[nodiscard]] distributed::MeshCommunicators& mesh() { return mesh_; }
  [[nodiscard]] const distributed::MeshCommunicators& mesh() const { return mesh_; }
  [[nodiscard]] train::Evaluator& evaluator() const { return *evaluator_; }
  /// Throws Error(internal) unless settings.use was training.
  [[nodiscard]] train::Engine& engine() const;

 private:
  plan::MemoryPlan plan_;
  MemoryLedger ledger_;
  distributed::MeshCommunicators mesh_;
  std::unique_ptr<train::Evaluator> evaluator_;
};

class MemoryUse {
 public:
  /// Construct before the run's arrays are allocated.
  MemoryUse();
  /// Bytes of this rank's process without the run's arrays; 0 for a GPU.
  [[nodiscard]] std::int64_t before() const { return before_; }
  /// Bytes of this rank: on a host the process's peak; on a GPU the bytes allocated since the start (without the
  /// driver's context) by all ranks that share the GPU, divided by their number. Collective.
  [[nodiscard]] std::int64_t taken(Session& session) const;

 private:
  std::int64_t free_at_start_;
  std::int64_t before_;
};

/// Number of ranks that compute on this rank's GPU, whichever GPUs the launcher lets each see. Collective.
int ranks_per_gpu(Session& session);

}  // namespace kozero::run
