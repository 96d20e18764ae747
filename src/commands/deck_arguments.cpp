// SPDX-FileCopyrightText: The KoZeRO authors
// SPDX-License-Identifier: Apache-2.0
#include <algorithm>

#include <kozero/core/error.hpp>
#include <kozero/dist/agreed.hpp>

#include "deck_arguments.hpp"
#include "device_handover.hpp"
#include "initial_model.hpp"
#include "start_checks.hpp"

namespace kozero::commands {

void parse(CLI::App& app, const Arguments& arguments) {
  app.set_help_flag();  // run_command answers --help
  std::vector<std::string> reversed(arguments.rbegin(), arguments.rend());
  try {
    app.parse(reversed);
  } catch (const CLI::ParseError& error) {
    throw Error(
        Failure::deck,
        app.get_name() + ": " + error.what() + "; usage: kozero " + app.get_name() + " " + app.get_description(),
        Error::Seen::by_all_ranks);
  }
}

void DeckArguments::add_to(CLI::App& app) {
  app.add_option("deck", path)->required();
  app.add_option("overrides", overrides);
}

bool DeckArguments::gives(const std::string& key) const {
  const std::string wanted = key.ends_with('.') ? key : key + "=";
  return std::any_of(overrides.begin(), overrides.end(),
                     [&](const std::string& each) { return each.starts_with(wanted); });
}

io::Deck DeckArguments::read(dist::Communicator& comm) const {
  io::Deck deck = dist::agreed(comm, [&] { return io::read_deck(path, overrides); });
  require_same_deck(deck, comm);
  return with_initial_model(std::move(deck), comm);
}

io::Deck DeckArguments::read_for_any_device(dist::Communicator& comm) const { return without_device(read(comm)); }

}  // namespace kozero::commands
