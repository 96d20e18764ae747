// SPDX-FileCopyrightText: The KoZeRO authors
// SPDX-License-Identifier: Apache-2.0
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <iostream>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include <kozero/core/error.hpp>
#include <kozero/io/utf8.hpp>

#include "arguments.hpp"

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

}  // namespace kozero::commands
