// SPDX-FileCopyrightText: The KoZeRO authors
// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <iostream>

#include "src/commands/arguments.hpp"
#include "src/commands/session.hpp"
#include "src/commands/unsaved_run.hpp"

namespace kozero::commands {

/// Prints how many ranks kozero.sh starts for a train or verify of these arguments: the deck's run.ranks; for verify
/// the most of --ranks, or with RUN --replay the count of that run.
void ranks(const dist::Environment& environment, const Arguments& arguments) {
  OptionParser parser("ranks");
  parser.allow_extras();  // their flags come along
  DeckArguments deck_arguments;
  deck_arguments.add_to(parser);
  VerifyOptions options;
  options.add_to(parser);
  parser.parse(arguments);
  if (options.replayed > 0) {
    const std::int64_t count = std::max<std::int64_t>(ranks_of_run(deck_arguments.path), 1);
    if (environment.rank() == 0) std::cout << count << std::endl;
    return;
  }
  Session session(environment, [&](dist::Communicator& comm) { return deck_arguments.read_for_any_device(comm); });
  if (!session.is_first_rank()) return;
  std::cout << (options.ranks.empty() ? session.deck().run.ranks : *std::ranges::max_element(options.ranks))
            << std::endl;
}

}  // namespace kozero::commands
