// SPDX-FileCopyrightText: The KoZeRO authors
// SPDX-License-Identifier: Apache-2.0
// arguments.cpp: parsing, the help text, and the deck read with its overrides and agreed on by all ranks.
#include <algorithm>
#include <cerrno>
#include <charconv>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fmt/format.h>
#include <iostream>
#include <nlohmann/json.hpp>
#include <unistd.h>

#include <kozero/core/error.hpp>
#include <kozero/dist/communicator.hpp>
#include "io/deck/schema.hpp"
#include "io/posix/readable.hpp"
#include "src/commands/arguments.hpp"
#include "src/commands/initial_model.hpp"
#include "src/commands/program.hpp"
#include "src/commands/session.hpp"

namespace kozero::commands {
namespace {

constexpr std::size_t kTextColumn = 26;  // of an option's description
constexpr std::size_t kWidth = 80;

std::string usage_of(const Command& command) {
  return "usage: kozero " + command.name + (command.arguments.empty() ? "" : " " + command.arguments);
}

/// "--steps N", "--json".
std::string head_of(const CLI::Option& option) {
  const std::string type = option.get_type_name();
  const bool is_flag = option.get_expected_max() == 0;
  return option.get_name(false, true) + (is_flag || type.empty() ? "" : " " + type.substr(0, type.find(':')));
}

/// The description with the default behind it, where there is one.
std::string text_of(CLI::Option& option) {
  if (option.get_default_str().empty() && option.get_expected_max() > 0) option.capture_default_str();
  std::string value = option.get_default_str();
  if (value == "\n") value = "a line break";
  const std::string shown = value.empty() || value == "[]" ? "" : "(default: " + io::printable(value) + ")";
  const std::string text = option.get_description();
  return text + (text.empty() || shown.empty() ? "" : " ") + shown;
}

/// Words of `text` in lines of kWidth columns: the first begins at `column`, the others at `indent`.
std::string folded(const std::string& text, std::size_t column, std::size_t indent) {
  std::string lines;
  bool at_start = true;
  for (std::size_t first = 0; first < text.size();) {
    const std::size_t end = std::min(text.find(' ', first), text.size());
    const std::size_t extent = end - first;
    if (!at_start && column + 1 + extent > kWidth) {
      lines += "\n" + std::string(indent, ' ');
      column = indent;
    } else if (!at_start) {
      lines += " ";
      ++column;
    }
    lines += text.substr(first, extent);
    column += extent;
    at_start = false;
    first = end + 1;
  }
  return lines;
}

/// "  --steps N              steps to compute ..."
std::string option_lines(const std::string& head, const std::string& text) {
  const std::string start = "  " + head;
  const std::string gap = start.size() + 2 > kTextColumn ? "\n" + std::string(kTextColumn, ' ')
                                                         : std::string(kTextColumn - start.size(), ' ');
  return start + gap + folded(text, kTextColumn, kTextColumn) + "\n";
}

HelpAsked help_of(CLI::App& app) {
  const Command& command = command_named(app.get_name());
  HelpAsked help;
  std::string options;
  std::string overrides;
  for (CLI::Option* option : app.get_options()) {
    if (option->get_name(true, false) == "overrides") {
      help.takes_overrides = true;
      overrides = option->get_description();
    }
    if (!option->nonpositional()) continue;
    help.options.push_back(option->get_name(false, false));
    options += option_lines(head_of(*option), text_of(*option));
  }
  help.text = folded(usage_of(command) + (options.empty() ? "" : " [OPTION...]"), 0, 4) + "\n\n" +
              folded(command.summary, 0, 0) + "\n";
  if (help.takes_overrides || !options.empty()) help.text += "\n";
  if (help.takes_overrides) {
    if (overrides.empty()) overrides = "changes a key of the deck";
    help.text += option_lines("section.key=value", overrides + "; read as TOML; `kozero keys` lists all keys");
  }
  help.text += options + "\nexample: kozero " + command.example + "\n\n" + exit_statuses();
  return help;
}

}  // namespace

bool asks_for_help(const std::string& argument) { return argument == "--help" || argument == "-h"; }

std::string exit_statuses() {
  return "Exit status: 0 done, 1 internal, or a difference (inspect, verify), 2 deck or\n"
         "usage, 3 bad input file, 4 write failed, 5 rank or communication lost,\n"
         "6 non-finite, 75 stopped: it prints how to go on, 130 a second SIGINT.\n";
}

void parse(CLI::App& app, const Arguments& arguments) {
  app.set_help_flag();
  if (std::any_of(arguments.begin(), arguments.end(), asks_for_help)) throw help_of(app);
  std::vector<std::string> reversed(arguments.rbegin(), arguments.rend());
  try {
    app.parse(reversed);
  } catch (const CLI::ParseError& error) {
    throw Error(Failure::deck,
                app.get_name() + ": " + error.what() + "; " + usage_of(command_named(app.get_name())) +
                    "; --help lists the options",
                Error::Seen::by_all_ranks);
  }
}

void JsonOutput::add_to(CLI::App& app) {
  app.add_flag_callback(
      "--json",
      [this] {
        std::cout.flush();
        std::fflush(stdout);
        line_output_ = ::dup(STDOUT_FILENO);
        if (line_output_ < 0 || ::dup2(STDERR_FILENO, STDOUT_FILENO) < 0) {
          throw Error(Failure::internal,
                      std::string("--json: cannot redirect standard output: ") + std::strerror(errno));
        }
        ::unsetenv("KOZERO_TERMINAL");  // the width of standard output as it was
      },
      "print one line of JSON on standard output, all else on standard error");
}

void JsonOutput::print(const nlohmann::ordered_json& json) const {
  if (!is_asked()) return;
  std::cout.flush();
  const std::string line = json.dump(-1, ' ', false, nlohmann::ordered_json::error_handler_t::replace) + "\n";
  for (std::size_t done = 0; done < line.size();) {
    const ssize_t written = ::write(line_output_, line.data() + done, line.size() - done);
    if (written < 0 && errno == EINTR) continue;
    if (written < 0) throw Error(Failure::write, std::string("standard output: ") + std::strerror(errno));
    done += static_cast<std::size_t>(written);
  }
}

namespace {

/// "" where the text is one, else how the option is used.
std::string refuse_non_positive(const std::string& text) {
  std::int64_t value = 0;
  const auto [end, problem] = std::from_chars(text.data(), text.data() + text.size(), value);
  const bool good = problem == std::errc() && end == text.data() + text.size() && value >= 1;
  return good ? "" : "\"" + text + "\"; accepted: integer >= 1";
}

/// "data.text, comm.*": sections end in a point.
std::string listed(const std::vector<std::string>& keys) {
  std::string list;
  for (const auto& key : keys) list += (list.empty() ? "" : ", ") + key + (key.ends_with('.') ? "*" : "");
  return list;
}

}  // namespace

void DeckArguments::add_to(CLI::App& app, const std::vector<std::string>& applied) {
  app.add_option("deck", path)->required();
  app.add_option("overrides", overrides, applied.empty() ? "" : "changes one of " + listed(applied));
}

void VerifyOptions::add_to(CLI::App& app) {
  const CLI::Validator positive(refuse_non_positive, "");
  auto* first = app.add_option("--steps", steps, "steps to compute under each ZeRO stage")->check(positive);
  auto* again = app.add_option("--replay", replayed,
                               "of a RUN: compute this step again from its nearest checkpoint and compare bits; status "
                               "0 where they are equal, 1 where they are not");
  first->type_name("N");
  again->type_name("N")->default_str("none")->check(positive)->excludes(first);
}

bool DeckArguments::gives(const std::string& key) const {
  const std::string wanted = key.ends_with('.') ? key : key + "=";
  return std::any_of(overrides.begin(), overrides.end(),
                     [&](const std::string& each) { return each.starts_with(wanted); });
}

void DeckArguments::require_applied(const std::string& command, const std::vector<std::string>& applied) const {
  for (const auto& each : overrides) {
    const std::string key = each.substr(0, each.find('='));
    const bool is_applied = std::any_of(applied.begin(), applied.end(), [&](const std::string& name) {
      return name.ends_with('.') ? key.starts_with(name) : key == name;
    });
    if (is_applied || io::find_row(key) == nullptr) continue;
    throw Error(Failure::deck,
                "command line: " + each + ": " + command + " does not read it; accepted are " + listed(applied),
                Error::Seen::by_all_ranks);
  }
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
