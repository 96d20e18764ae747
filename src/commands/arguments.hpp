// SPDX-FileCopyrightText: The KoZeRO authors
// SPDX-License-Identifier: Apache-2.0
// arguments.hpp: the option parser of all commands, and the arguments "DECK [section.key=value ...]" of those with a
// deck.
//   CLI::App app("", "plan");   app.add_option("--ranks", n, "ranks to plan for");   parse(app, arguments);
// --help and --json have the same form in every command. The header includes CLI11.
#pragma once
#include <CLI/CLI.hpp>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include <kozero/commands/command.hpp>
#include <kozero/dist/communicator.hpp>
#include "io/deck/deck.hpp"

namespace kozero::commands {

// How every command parses its arguments, and what --help and --json are for all of them.
//   CLI::App app("", "plan");                                      named as its row of the command table
//   app.add_option("--ranks", n, "ranks to plan for");             what --help and shell completion show
//   json.add_to(app);
//   parse(app, arguments);

/// Parses `arguments`. Throws HelpAsked where they hold --help or -h, else Error(deck, seen by all ranks) with the
/// parser's reason and how the command is used.
void parse(CLI::App& app, const Arguments& arguments);

/// A command was asked for --help: no error, but nothing of the command runs.
struct HelpAsked {
  std::string text;
  std::vector<std::string> options;  ///< "--json", ... of the command
  bool takes_overrides = false;      ///< section.key=value
};

bool asks_for_help(const std::string& argument);

/// What every command's exit status means; for --help.
std::string exit_statuses();

/// `--json`: standard output holds one line of JSON and nothing else. Once the flag is parsed, all that this process
/// writes to standard output, libraries included, goes to standard error.
class JsonOutput {
 public:
  /// This object must outlive parse().
  void add_to(CLI::App& app);
  [[nodiscard]] bool is_asked() const { return line_output_ >= 0; }
  /// Writes the line; nothing without --json. Throws Error(write).
  void print(const nlohmann::ordered_json& json) const;

 private:
  int line_output_ = -1;  // what standard output was
};

// "DECK [section.key=value ...] [--flags]" of a command line.

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
