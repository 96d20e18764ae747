// SPDX-FileCopyrightText: The KoZeRO authors
// SPDX-License-Identifier: Apache-2.0
// session.hpp: the start of every command with a deck: checks the launch (start_checks.hpp), reads the deck, on which
// the ranks agree, initializes Kokkos with the deck's threads, and connects the ranks.
#pragma once
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <kozero/core/ledger.hpp>
#include <kozero/distributed/communicator.hpp>
#include <kozero/distributed/environment.hpp>
#include <kozero/distributed/make_communicator.hpp>
#include <kozero/plan/memory_plan.hpp>
#include <kozero/train/runtime.hpp>
#include "io/deck/deck.hpp"
#include "io/run/run_status.hpp"

namespace kozero::run {

/// A process of a job and its placement.
struct RankPlacement : io::RankProcess {
  std::vector<int> cores;  ///< that its threads may use (core_numbers)
  std::string text;        ///< train::Runtime::placement()
};

class Session {
 public:
  /// Returns a command's deck on all ranks, before Kokkos is up. Collective; throws Error seen by all ranks.
  using Read = std::function<io::Deck(distributed::Communicator& comm)>;

  /// Throws what `read` throws, and Error, seen by all ranks, if the ranks cannot work together.
  Session(const distributed::Environment& environment, const Read& read);
  /// A session of the first ranks of `all`, with communicators of its own, by comm.backend or `backend`. Collective
  /// over these ranks.
  Session(const Session& all, const distributed::FirstRanks& ranks, std::string backend = "");

  [[nodiscard]] const distributed::Environment& environment() const { return environment_; }
  [[nodiscard]] const io::Deck& deck() const { return deck_; }
  /// Replaces the deck by that of another part of the same run: a lesson of its curriculum, an epoch of its corpus.
  void use_deck(io::Deck deck) { deck_ = std::move(deck); }
  [[nodiscard]] const train::Runtime& runtime() const { return *runtime_; }
  /// Of all ranks, in rank order.
  [[nodiscard]] const std::vector<RankPlacement>& placements() const { return placements_; }
  /// The path in run.tuning, whose file selects the algorithms of matrix products; "" without one.
  [[nodiscard]] const std::string& tuning() const { return tuning_; }
  /// The communicator for agreements, whose waits last as long as all ranks live (communicator.hpp). Data of a run use
  /// other communicators.
  [[nodiscard]] distributed::Communicator& control() { return *control_; }
  /// comm.backend, with `auto` replaced by the back end for these ranks, chosen once. Collective, like connect().
  [[nodiscard]] const std::string& backend();
  /// Rank 0's memory plan for these settings, backend() and the ranks' nodes. Collective.
  [[nodiscard]] plan::MemoryPlan plan_of(train::Settings settings);
  /// The communicators for a run's data, by backend() and comm.timeout_s. Their buffers are booked in `ledger`.
  /// Collective.
  [[nodiscard]] distributed::MeshCommunicators connect(const train::Settings& settings, MemoryLedger& ledger);
  [[nodiscard]] bool is_first_rank() const { return environment_.rank() == 0; }

 private:
  [[nodiscard]] distributed::CommunicatorOptions options() const;
  /// Ranks per node; 0 if nodes have different numbers of ranks. Collective. Throws Error(deck, seen by all ranks) if
  /// zero.shard_group = "node" requires equal numbers.
  [[nodiscard]] int ranks_per_node() const;

  const distributed::Environment& environment_;
  distributed::Ranks ranks_;
  io::Deck deck_;
  std::optional<train::Runtime> runtime_;
  std::vector<RankPlacement> placements_;
  std::unique_ptr<distributed::Communicator> control_;
  std::string tuning_;
  std::string backend_;  // "" until the first call of backend()
};

}  // namespace kozero::run
