// SPDX-FileCopyrightText: The KoZeRO authors
// SPDX-License-Identifier: Apache-2.0
// option_parser.cpp: parsing by CLI11, and the help text, which is made from the parser's options.
#include <algorithm>
#include <CLI/CLI.hpp>
#include <optional>
#include <utility>

#include <kozero/core/error.hpp>
#include "io/posix/readable.hpp"
#include "src/commands/option_parser.hpp"

namespace kozero::commands {

Option& Option::type_name(const std::string& name) {
  option_->type_name(name);
  return *this;
}

Option& Option::default_text(const std::string& text) {
  option_->default_str(text);
  return *this;
}

Option& Option::required() {
  option_->required();
  return *this;
}

Option& Option::at_least_values(int least) {
  option_->expected(least, -1);
  return *this;
}

Option& Option::delimiter(char separator) {
  option_->delimiter(separator)->allow_extra_args(false);  // else it would take what follows the list
  return *this;
}

Option& Option::excludes(const Option& other) {
  option_->excludes(other.option_);
  return *this;
}

Option& Option::positive() {
  option_->check(CLI::PositiveNumber);
  return *this;
}

Option& Option::between(std::int64_t least, std::int64_t most) {
  option_->check(CLI::Range(least, most));
  return *this;
}

Option& Option::between(double least, double most) {
  option_->check(CLI::Range(least, most));
  return *this;
}

Option& Option::one_of(const std::vector<std::string>& words) {
  option_->check(CLI::IsMember(words));
  return *this;
}

Option& Option::check(std::function<std::string(const std::string& text)> refusal) {
  option_->check(CLI::Validator([refusal = std::move(refusal)](std::string& text) { return refusal(text); }, ""));
  return *this;
}

bool Option::is_given() const { return option_->count() > 0; }

OptionParser::OptionParser(const std::string& command) : app_(std::make_unique<CLI::App>("", command)) {}
OptionParser::~OptionParser() = default;

template <class T>
Option OptionParser::add(const std::string& name, T& value, const std::string& description) {
  return Option(app_->add_option(name, value, description));
}

template Option OptionParser::add(const std::string&, std::string&, const std::string&);
template Option OptionParser::add(const std::string&, std::optional<std::string>&, const std::string&);
template Option OptionParser::add(const std::string&, int&, const std::string&);
template Option OptionParser::add(const std::string&, std::int64_t&, const std::string&);
template Option OptionParser::add(const std::string&, std::uint64_t&, const std::string&);
template Option OptionParser::add(const std::string&, double&, const std::string&);
template Option OptionParser::add(const std::string&, std::vector<std::string>&, const std::string&);
template Option OptionParser::add(const std::string&, std::vector<std::int64_t>&, const std::string&);
template Option OptionParser::add(const std::string&, std::vector<double>&, const std::string&);

Option OptionParser::add_flag(const std::string& name, bool& value, const std::string& description) {
  return Option(app_->add_flag(name, value, description));
}

void OptionParser::add_flag(const std::string& name, std::function<void()> given, const std::string& description) {
  app_->add_flag_callback(name, std::move(given), description);
}

void OptionParser::allow_extras() { app_->allow_extras(); }

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

void OptionParser::parse(const Arguments& arguments) {
  CLI::App& app = *app_;
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

}  // namespace kozero::commands
