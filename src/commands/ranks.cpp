// SPDX-FileCopyrightText: The KoZeRO authors
// SPDX-License-Identifier: Apache-2.0
// ranks.cpp: the hidden command `ranks`, by which kozero.sh learns how many ranks to start.
#include <algorithm>
#include <array>
#include <iostream>

#include <kozero/commands/commands.hpp>
#include <kozero/core/error.hpp>
#include <kozero/program/arguments.hpp>
#include <kozero/run/session.hpp>
#include <kozero/run/unsaved_run.hpp>
#include "io/deck/check.hpp"
#include "io/deck/named_deck.hpp"
#include "io/posix/block_hashes.hpp"
#include "src/commands/verify.hpp"

namespace kozero::commands {

using program::DeckArguments;
using program::OptionParser;
using run::Session;

namespace {

/// They do not change the number of ranks (src/commands/train.cpp).
constexpr std::array<const char*, 3> kFlagsOfTrain = {"--verify-data", "--steal-lock", "--json"};

/// A stop signal that MPICH's launcher hands on to all ranks; "" without one.
std::string forwarded_signal(const std::vector<std::string>& stop_signals) {
  for (const char* const name : {"SIGUSR1", "SIGTERM", "SIGINT"}) {
    if (std::ranges::find(stop_signals, name) != stop_signals.end()) return name;
  }
  return "";
}

}  // namespace

/// Prints how many ranks kozero.sh starts for the command `train ...` or `verify ...`: the deck's run.ranks; for verify
/// the largest of --ranks, or with RUN --replay the count of that run. For `train ...` the deck's hash follows, and
/// otherwise the deck's text is kept, so that what kozero.sh starts is of this deck (io/deck/named_deck.hpp). For
/// `restarts ...` and `hosts ...`, a `train` that kozero.sh starts with --restarts or with --hosts alone, also prints
/// run.dir, checkpoint.resume ("auto" by default) and a signal that stops the run. Throws the same errors as the
/// command.
void ranks(const distributed::Environment& environment, const Arguments& command) {
  const std::string name = command.empty() ? "" : command[0];
  if (name != "train" && name != "verify" && name != "restarts" && name != "hosts") {
    throw Error(Failure::deck,
                "ranks: \"" + name + "\": accepted: train | verify | restarts | hosts, and its arguments",
                Error::Seen::by_all_ranks);
  }
  OptionParser parser(name == "verify" ? "verify" : "train");
  const Arguments arguments(command.begin() + 1, command.end());
  DeckArguments deck_arguments;
  deck_arguments.add_to(parser);
  VerifyOptions options;
  if (name == "verify") {
    options.add_to(parser);
  } else {
    for (const char* const flag : kFlagsOfTrain)
      parser.add_flag(
          flag, [] {}, "");
  }
  parser.parse(arguments);
  if (options.replayed > 0) {
    const std::int64_t count = std::max<std::int64_t>(run::ranks_of_run(deck_arguments.path), 1);
    if (environment.rank() == 0) std::cout << count << std::endl;
    return;
  }
  Session session(environment, [&](distributed::Communicator& comm) {
    io::Deck deck = deck_arguments.read_for_any_device(comm);
    deck.notes.clear();  // the command itself prints them
    if (name == "restarts" && deck.is_set("checkpoint.resume") && deck.checkpoint.resume != "auto") {
      io::refuse_value(deck, "checkpoint.resume", "with --restarts accepted is \"auto\", which is the default then");
    }
    if (name == "restarts" && deck.checkpoint.every == 0) {
      io::refuse_value(
          deck, "checkpoint.every",
          "--restarts starts a run again from its newest checkpoint; give 1 or more, or leave --restarts out");
    }
    return deck;
  });
  if (!session.is_first_rank()) return;
  io::keep_named_deck(deck_arguments.path);
  std::cout << (options.ranks.empty() ? session.deck().run.ranks : *std::ranges::max_element(options.ranks))
            << std::endl;
  if (name == "train") std::cout << io::xxh3_128(io::text_of_named_deck(deck_arguments.path)) << std::endl;
  if (name != "restarts" && name != "hosts") return;
  const io::Deck& deck = session.deck();
  std::cout << deck.run.dir << "\n"
            << (deck.is_set("checkpoint.resume") ? deck.checkpoint.resume : "auto") << "\n"
            << forwarded_signal(deck.run.stop_signals) << std::endl;
}

}  // namespace kozero::commands
