// SPDX-FileCopyrightText: The KoZeRO authors
// SPDX-License-Identifier: Apache-2.0
// arguments.hpp: options that several commands share: --json and "DECK [section.key=value ...]".
//   OptionParser parser("plan");   deck_arguments.add_to(parser);   json.add_to(parser);   parser.parse(arguments);
#pragma once
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include <kozero/distributed/communicator.hpp>
#include <kozero/program/command.hpp>
#include <kozero/program/option_parser.hpp>
#include "io/deck/deck.hpp"

namespace kozero::program {

/// `--json`: standard output has one line of JSON and nothing else. Once the flag is parsed, other output of this
/// process to standard output, libraries included, goes to standard error.
class JsonOutput {
 public:
  /// This object must outlive parse().
  void add_to(OptionParser& parser);
  [[nodiscard]] bool is_asked() const { return line_output_ >= 0; }
  /// Writes the line; nothing without --json. Throws Error(write).
  void print(const nlohmann::ordered_json& json) const;

 private:
  int line_output_ = -1;  // a duplicate of standard output; -1: --json is not given
};

/// `--adapter FOLDER`: a PEFT folder whose adapters are added to the base; `folder` stays "" without the option.
void add_adapter_option(OptionParser& parser, std::string& folder);

/// "DECK [section.key=value ...] [--flags]" of a command line.
struct DeckArguments {
  std::string path;
  std::vector<std::string> overrides;
  /// `applied`: the keys or sections that --help names; none: all.
  void add_to(OptionParser& parser, const std::vector<std::string>& applied = {});
  /// Whether an override is of this key, or, for "data.", of this section.
  [[nodiscard]] bool gives(const std::string& key) const;
  /// Rejects an override of a key that `command` does not read: one not in `applied` (keys, or sections as "data.").
  /// Unknown names pass, since read() rejects them. Throws Error(deck), seen by all ranks.
  void require_applied(const std::string& command, const std::vector<std::string>& applied) const;
  /// The deck, completed by the model that model.init names. Collective. Throws, seen by all ranks, Error(deck), also
  /// if the ranks' decks differ, or Error(input) if the model of model.init cannot be read.
  [[nodiscard]] io::Deck read(distributed::Communicator& comm) const;
  /// The same for a command that needs no device, whatever run.device says.
  [[nodiscard]] io::Deck read_for_any_device(distributed::Communicator& comm) const;
};

}  // namespace kozero::program
