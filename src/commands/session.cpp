// SPDX-FileCopyrightText: The KoZeRO authors
// SPDX-License-Identifier: Apache-2.0
#include <kozero/core/error.hpp>
#include <kozero/dist/make_communicator.hpp>

#include "session.hpp"

namespace kozero::commands {

Session::Session(const dist::Environment& environment, const std::function<io::Deck()>& read)
    : environment_(environment) {
  int status = 0;
  std::string message;
  try {
    deck_ = read();
  } catch (const Error& error) {
    status = error.exit_status();
    message = error.what();
  }
  runtime_.emplace(status == 0 ? deck_.run.threads : 1, environment.local_ranks());
  control_ = dist::make_communicator(environment.size() == 1 ? "self" : "mpi", environment.world(), ledger_);
  dist::agree(*control_, status, message);

  const std::string mine = io::fingerprint(deck_);
  const std::string difference = io::first_difference(control_->broadcast_control(mine), mine);
  const std::string refusal = "ranks 0 and " + std::to_string(control_->rank()) + " disagree on " + difference +
                              ": give every rank the same deck and overrides";
  dist::agree(*control_, static_cast<int>(Failure::deck), difference.empty() ? "" : refusal);
}

}  // namespace kozero::commands
