// SPDX-FileCopyrightText: The KoZeRO authors
// SPDX-License-Identifier: Apache-2.0
// deck_arguments.hpp: "DECK [section.key=value ...] [--flags]" of a command line.
#pragma once
#include <string>
#include <vector>

#include <kozero/dist/communicator.hpp>
#include <kozero/io/deck.hpp>

#include "arguments.hpp"

namespace kozero::commands {

struct DeckArguments {
  std::string path;
  std::vector<std::string> overrides;
  /// `applied`: the keys or sections that --help names; none: all.
  void add_to(CLI::App& app, const std::vector<std::string>& applied = {});
  /// Whether an override is of this key, or, for "data.", of this section.
  [[nodiscard]] bool gives(const std::string& key) const;
  /// Refuses an override of a key that is none of `applied` (keys, or sections as "data."): nothing of `command` reads
  /// it. Names that are no keys pass, for read() to refuse. Throws Error(deck), seen by all ranks.
  void require_applied(const std::string& command, const std::vector<std::string>& applied) const;
  /// Completed by what model.init names. Collective. Throws Error(deck), or Error(input) where that cannot be read,
  /// seen by all ranks; and where the ranks' decks differ.
  [[nodiscard]] io::Deck read(dist::Communicator& comm) const;
  /// The same for a command that needs no device, whatever run.device says.
  [[nodiscard]] io::Deck read_for_any_device(dist::Communicator& comm) const;
};

/// `[--steps N] | [--replay STEP]` of verify; `kozero ranks` reads them too.
struct VerifyOptions {
  std::int64_t steps = 3;
  std::int64_t replayed = 0;  ///< 0: none
  void add_to(CLI::App& app);
};

}  // namespace kozero::commands
