// SPDX-FileCopyrightText: The KoZeRO authors
// SPDX-License-Identifier: Apache-2.0
// deck_arguments.hpp: "DECK [section.key=value ...] [--flags]" of a command line.
#pragma once
#include <string>
#include <vector>

#include <CLI/CLI.hpp>

#include <kozero/commands/command.hpp>
#include <kozero/dist/communicator.hpp>
#include <kozero/io/deck.hpp>

namespace kozero::commands {

/// Parses `arguments`. Throws Error(deck, seen by all ranks) with the parser's reason and how the command is used.
void parse(CLI::App& app, const Arguments& arguments);

struct DeckArguments {
  std::string path;
  std::vector<std::string> overrides;
  void add_to(CLI::App& app);
  /// Whether an override is of this key, or, for "data.", of this section.
  [[nodiscard]] bool gives(const std::string& key) const;
  /// Completed by what model.init names. Collective. Throws Error(deck), or Error(input) where that cannot be read,
  /// seen by all ranks; and where the ranks' decks differ.
  [[nodiscard]] io::Deck read(dist::Communicator& comm) const;
  /// The same for a command that needs no device, whatever run.device says.
  [[nodiscard]] io::Deck read_for_any_device(dist::Communicator& comm) const;
};

}  // namespace kozero::commands
