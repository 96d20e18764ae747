// SPDX-FileCopyrightText: The KoZeRO authors
// SPDX-License-Identifier: Apache-2.0
#include <iostream>

#include "deck_arguments.hpp"
#include "session.hpp"

namespace kozero::commands {

/// Prints run.ranks: what kozero.sh starts where nothing else says.
void ranks(const dist::Environment& environment, const Arguments& arguments) {
  CLI::App app("DECK [section.key=value ...]", "ranks");
  app.allow_extras();  // other commands' flags come along
  DeckArguments deck_arguments;
  deck_arguments.add_to(app);
  parse(app, arguments);
  Session session(environment, [&](dist::Communicator& comm) { return deck_arguments.read_for_any_device(comm); });
  if (session.is_first_rank()) std::cout << session.deck().run.ranks << std::endl;
}

}  // namespace kozero::commands
