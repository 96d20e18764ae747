// SPDX-FileCopyrightText: The KoZeRO authors
// SPDX-License-Identifier: Apache-2.0
// session.hpp: what every command that works on a deck begins with: the start checked (start_checks.hpp), the deck read
// and agreed on, Kokkos up with the deck's threads, ranks connected.
#pragma once
#include <functional>
#include <memory>
#include <optional>

#include <kozero/core/ledger.hpp>
#include <kozero/dist/communicator.hpp>
#include <kozero/dist/communicator_options.hpp>
#include <kozero/dist/environment.hpp>
#include <kozero/io/deck.hpp>
#include <kozero/train/runtime.hpp>

namespace kozero::commands {

class Session {
 public:
  /// What a command's deck is, on all ranks: collective, throws Error seen by all ranks. Kokkos is not up yet.
  using Read = std::function<io::Deck(dist::Communicator& comm)>;

  /// Throws what `read` does, and Error, seen by all ranks, where the ranks cannot work together.
  Session(const dist::Environment& environment, const Read& read);

  [[nodiscard]] const dist::Environment& environment() const { return environment_; }
  [[nodiscard]] const io::Deck& deck() const { return deck_; }
  [[nodiscard]] const train::Runtime& runtime() const { return *runtime_; }
  /// The file that run.tuning names, "" without one: products go by it.
  [[nodiscard]] const std::string& tuning() const { return tuning_; }
  /// Carries agreements, which wait for work of any length (control_communicator.hpp); a run's data move through a
  /// communicator of its own.
  [[nodiscard]] dist::Communicator& control() { return *control_; }
  /// comm.backend, or which one `auto` is for these ranks: they are asked once. Collective, as connect() is.
  [[nodiscard]] const std::string& backend();
  /// One for a run's data, as backend() and comm.timeout_s say. Its buffers are booked in `ledger`. Collective.
  [[nodiscard]] std::unique_ptr<dist::Communicator> connect(MemoryLedger& ledger);
  [[nodiscard]] bool is_first_rank() const { return environment_.rank() == 0; }

 private:
  [[nodiscard]] dist::CommunicatorOptions options() const;

  const dist::Environment& environment_;
  io::Deck deck_;
  std::optional<train::Runtime> runtime_;
  std::unique_ptr<dist::Communicator> control_;
  std::string tuning_;
  std::string backend_;  // "" until it was asked for
};

}  // namespace kozero::commands
