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

double timeout_asked(char** argv) {
  const std::string key = "comm.timeout_s=";
  std::string deck;
  std::vector<std::string> given;
  for (char** each = argv + 1; *each != nullptr; ++each) {
    if (std::string(*each).starts_with(key)) given.emplace_back(*each);
    if (deck.empty() && std::string(*each).ends_with(".toml")) deck = *each;
  }
  try {
    if (!deck.empty()) return io::read_deck(deck, given).comm.timeout_s;
    if (!given.empty()) return std::max(std::stod(given.back().substr(key.size())), 1e-3);
  } catch (const std::exception&) {  // refused with its reason when the command reads it
  }
  return io::Deck().comm.timeout_s;
}

}  // namespace kozero::commands
