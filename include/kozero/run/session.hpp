// SPDX-FileCopyrightText: The KoZeRO authors
// SPDX-License-Identifier: Apache-2.0
// session.hpp: the start of every command that works on a deck. The start is checked (start_checks.hpp), the deck is
// read and the ranks agree on it, Kokkos is up with the deck's threads, and the ranks are connected.
#pragma once
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include <kozero/core/ledger.hpp>
#include <kozero/distributed/communicator.hpp>
#include <kozero/distributed/environment.hpp>
#include <kozero/distributed/make_communicator.hpp>
#include <kozero/plan/memory_plan.hpp>
#include <kozero/train/runtime.hpp>
#include "io/deck/deck.hpp"

namespace kozero::run {

class Session {
 public:
  /// What a command's deck is, on all ranks: collective, throws Error seen by all ranks. Kokkos is not up yet.
  using Read = std::function<io::Deck(distributed::Communicator& comm)>;

  /// Throws what `read` does, and Error, seen by all ranks, where the ranks cannot work together.
  Session(const distributed::Environment& environment, const Read& read);
  /// That of the session's first ranks alone, for its data and agreements, by comm.backend or `backend`. Collective
  /// over them.
  Session(const Session& all, const distributed::FirstRanks& ranks, std::string backend = "");

  [[nodiscard]] const distributed::Environment& environment() const { return environment_; }
  [[nodiscard]] const io::Deck& deck() const { return deck_; }
  [[nodiscard]] const train::Runtime& runtime() const { return *runtime_; }
  /// The file that run.tuning names, "" without one: products go by it.
  [[nodiscard]] const std::string& tuning() const { return tuning_; }
  /// Carries agreements, which wait for work of any length (communicator.hpp); a run's data move through a
  /// communicator of its own.
  [[nodiscard]] distributed::Communicator& control() { return *control_; }
  /// comm.backend, or which one `auto` is for these ranks: they are asked once. Collective, as connect() is.
  [[nodiscard]] const std::string& backend();
  /// What rank 0 needs for a run of these settings, by backend() and where the ranks are. Collective.
  [[nodiscard]] plan::MemoryPlan plan_of(train::Settings settings);
  /// Those for the data of a run of these settings, as backend() and comm.timeout_s say. Their buffers are booked in
  /// `ledger`. Collective.
  [[nodiscard]] distributed::MeshCommunicators connect(const train::Settings& settings, MemoryLedger& ledger);
  [[nodiscard]] bool is_first_rank() const { return environment_.rank() == 0; }

 private:
  [[nodiscard]] distributed::CommunicatorOptions options() const;
  /// Of each node; 0 where they have different numbers. Collective. Throws Error(deck, seen by all ranks) where
  /// zero.shard_group = "node" needs equal ones.
  [[nodiscard]] int ranks_per_node() const;

  const distributed::Environment& environment_;
  distributed::Ranks ranks_;
  io::Deck deck_;
  std::optional<train::Runtime> runtime_;
  std::unique_ptr<distributed::Communicator> control_;
  std::string tuning_;
  std::string backend_;  // "" until it was asked for
};

}  // namespace kozero::run
