// SPDX-FileCopyrightText: The KoZeRO authors
// SPDX-License-Identifier: Apache-2.0
// arguments.hpp: how every command parses its arguments, and what --help and --json are for all of them.
//   CLI::App app("", "plan");                                      named as its row of the command table
//   app.add_option("--ranks", n, "ranks to plan for");             what --help and shell completion show
//   json.add_to(app);
//   parse(app, arguments);
#pragma once
#include <string>
#include <vector>

#include <CLI/CLI.hpp>
#include <nlohmann/json_fwd.hpp>

#include <kozero/commands/command.hpp>

namespace kozero::commands {

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

}  // namespace kozero::commands
