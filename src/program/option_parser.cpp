// SPDX-FileCopyrightText: The KoZeRO authors
// SPDX-License-Identifier: Apache-2.0
// option_parser.cpp: parsing by CLI11, the help text, which is made from the parser's options, and hints for mistakes.
#include <fmt/format.h>
#include <algorithm>
#include <cctype>
#include <charconv>
#include <CLI/CLI.hpp>
#include <cmath>
#include <optional>
#include <type_traits>
#include <utility>

#include <kozero/core/error.hpp>
#include <kozero/program/option_parser.hpp>
#include "io/deck/schema.hpp"
#include "io/posix/readable.hpp"

namespace kozero::program {

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
  option_->delimiter(separator)->allow_extra_args(false);  // else the option would consume arguments after the list
  return *this;
}

Option& Option::excludes(const Option& other) {
  option_->excludes(other.option_);
  return *this;
}

namespace {

/// The number that is all of `text`; nullopt for another text.
template <class Number>
std::optional<Number> number_in(const std::string& text) {
  Number value = 0;
  const auto [end, problem] = std::from_chars(text.data(), text.data() + text.size(), value);
  return problem == std::errc() && end == text.data() + text.size() ? std::optional(value) : std::nullopt;
}

/// "1000" for "1e3", which decks accept as an integer too. Other texts stay as they are.
std::string with_digits(std::string& text) {
  constexpr double kMost = 0x1p53;
  const double value = number_in<double>(text).value_or(0.5);
  const bool is_whole = value == std::trunc(value) && std::abs(value) <= kMost;
  if (is_whole && text.find_first_of("eE") != std::string::npos) {
    text = std::to_string(static_cast<std::int64_t>(value));
  }
  return "";
}

template <class T>
inline constexpr bool is_integer = std::is_integral_v<T>;
template <class T>
inline constexpr bool is_integer<std::vector<T>> = std::is_integral_v<T>;

std::string usage_of(const Command& command) {
  return "usage: kozero " + command.name + (command.arguments.empty() ? "" : " " + command.arguments);
}

/// "--steps N", "--json".
std::string head_of(const CLI::Option& option) {
  const std::string type = option.get_type_name();
  const bool is_flag = option.get_expected_max() == 0;
  return option.get_name(false, true) + (is_flag || type.empty() ? "" : " " + type.substr(0, type.find(':')));
}

/// The description, followed by the default if there is one.
std::string text_of(CLI::Option& option) {
  if (option.get_default_str().empty() && option.get_expected_max() > 0) option.capture_default_str();
  std::string value = option.get_default_str();
  if (value == "\n") value = "a line break";
  const std::string shown = value.empty() || value == "[]" ? "" : "(default: " + io::printable(value) + ")";
  const std::string text = option.get_description();
  return text + (text.empty() || shown.empty() ? "" : " ") + shown;
}

/// Each key with the first clause of its text in the schema, and its default.
std::string key_lines(const std::vector<std::string>& keys) {
  std::string lines = keys.empty() ? "" : "\nkeys given most often:\n";
  for (const auto& key : keys) {
    const io::DeckRow& row = *io::find_row(key);
    lines += option_lines(key, row.help.substr(0, row.help.find(';')) + " (default: " + io::default_of(row) + ")");
  }
  return lines;
}

HelpAsked help_of(CLI::App& app, const std::vector<std::string>& keys) {
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
  help.text += options + key_lines(keys) + "\nexample: kozero " + command.example + "\n\n" + exit_statuses();
  return help;
}

/// "zero.stage" for "--stage=2" and "--stage": the key that a user wrote as an option; "" if there is none.
std::string key_meant_by(const std::string& argument) {
  const std::string name = argument.substr(2, argument.find('=') - 2);
  if (io::find_row(name) != nullptr) return name;
  const auto& rows = io::deck_schema();
  const auto row =
      std::find_if(rows.begin(), rows.end(), [&](const auto& each) { return io::name_of(each.key) == name; });
  return row != rows.end() ? row->key : io::key_of_peer(name);
}

/// The option of the command that `argument` is nearest to; "" if none is near.
std::string near_option(const std::string& argument, CLI::App& app) {
  std::vector<std::string> names;
  for (const CLI::Option* option : app.get_options()) {
    if (option->nonpositional()) names.push_back(option->get_name(false, false));
  }
  const std::string name = argument.substr(0, argument.find('='));
  const std::string nearest = nearest_name(name, names.data(), names.data() + names.size());
  return nearest.empty() ? "" : name + " is no option; did you mean " + nearest + "?";
}

/// A replacement for `argument`, which is not an option of the command; "" if there is no suggestion.
std::string remedy_for(const std::string& argument, const Arguments& all, CLI::App& app) {
  const auto given = std::find(all.begin(), all.end(), argument);
  const std::string value = argument.find('=') != std::string::npos        ? argument.substr(argument.find('=') + 1)
                            : given == all.end() || given + 1 == all.end() ? "VALUE"
                                                                           : *(given + 1);
  if (argument == "-n" || argument == "-np") {
    return argument + " goes before the command: ./kozero.sh -n " + value + " " + app.get_name() +
           " ..., or mpiexec -n " + value + " kozero " + app.get_name() + " ...";
  }
  if (!argument.starts_with("--")) return "";
  const bool takes_keys = app.get_option_no_throw("overrides") != nullptr;
  const std::string key = takes_keys ? key_meant_by(argument) : "";
  const bool is_switch = value == "True" || value == "False" || value == "VALUE";  // Python's; ours may be a number
  if (!key.empty()) return argument + " is no option; did you mean " + key + (is_switch ? "" : "=" + value) + "?";
  return near_option(argument, app);
}

[[noreturn]] void refuse(const CLI::App& app, const std::string& why) {
  const Command& command = command_named(app.get_name());
  throw Error(Failure::deck,
              app.get_name() + ": " + why + (why.ends_with('?') ? " " : "; ") + usage_of(command) +
                  "; --help lists the options",
              Error::Seen::by_all_ranks);
}

/// The options among the arguments that the command does not have, each with what was meant.
std::vector<std::string> unknown_options(const Arguments& all, const CLI::App& app) {
  const std::vector<std::string> remaining = app.remaining();
  std::vector<std::string> unknown;
  for (const auto& argument : all) {
    if (argument == "--") break;
    const std::string name = argument.substr(0, argument.find('='));
    const bool remains = std::find(remaining.begin(), remaining.end(), argument) != remaining.end();
    const bool is_unknown =
        argument.starts_with("--") ? app.get_option_no_throw(name) == nullptr : argument.starts_with('-') && remains;
    const bool is_new = std::find(unknown.begin(), unknown.end(), argument) == unknown.end();
    if (is_unknown && is_new) unknown.push_back(argument);
  }
  return unknown;
}

/// Rejects options that the command does not have.
void refuse_unknown(const Arguments& all, CLI::App& app) {
  std::string why;
  for (const auto& argument : unknown_options(all, app)) {
    std::string text = remedy_for(argument, all, app);
    if (text.empty()) text = argument.substr(0, argument.find('=')) + " is no option";
    why += (why.empty() ? "" : why.ends_with('?') ? " " : "; ") + text;
  }
  if (!why.empty()) refuse(app, why);
}

/// Replaces `text` by its bytes, or returns why they are refused.
std::string as_bytes(std::string& text, double bytes, std::int64_t least, std::int64_t most, const char* examples) {
  if (!(bytes >= static_cast<double>(least) && bytes <= static_cast<double>(most))) {
    return fmt::format("\"{}\"; accepted: a size from {} to {}, {}", text, io::readable_bytes(least),
                       io::readable_bytes(most), examples);
  }
  text = std::to_string(static_cast<std::int64_t>(bytes));
  return "";
}

}  // namespace

std::optional<std::int64_t> integer_in(const std::string& text) { return number_in<std::int64_t>(text); }

Option& Option::positive() {
  return check([](const std::string& text) {
    return number_in<double>(text).value_or(0.0) > 0.0 ? "" : fmt::format("\"{}\"; accepted: number > 0", text);
  });
}

Option& Option::between(std::int64_t least, std::int64_t most) {
  return check([=](const std::string& text) {
    const std::optional<std::int64_t> value = integer_in(text);
    return value && *value >= least && *value <= most
               ? ""
               : fmt::format("\"{}\"; accepted: integer {} to {}", text, least, most);
  });
}

Option& Option::between(double least, double most) {
  return check([=](const std::string& text) {
    const std::optional<double> value = number_in<double>(text);
    return value && *value >= least && *value <= most
               ? ""
               : fmt::format("\"{}\"; accepted: number from {} to {}", text, least, most);
  });
}

Option& Option::one_of(const std::vector<std::string>& words) {
  return check([words](const std::string& text) -> std::string {
    if (std::find(words.begin(), words.end(), text) != words.end()) return "";
    const std::string nearest = nearest_name(text, words.data(), words.data() + words.size());
    return fmt::format("\"{}\"; accepted: {}{}", text, fmt::join(words, " | "),
                       nearest.empty() ? "" : "; did you mean " + nearest + "?");
  });
}

Option& Option::size(std::int64_t least, std::int64_t most) {
  return type_name("SIZE").rewrite([=](std::string& text) {
    const double bytes = text == "0" ? 0.0 : io::bytes_of_text(text).value_or(-1.0);
    return as_bytes(text, bytes, least, most, "such as 48GB or 512MiB");
  });
}

Option& Option::size_or_bytes(std::int64_t least, std::int64_t most) {
  return type_name("SIZE").rewrite([=](std::string& text) {
    const double bytes = io::bytes_of_text(text + (integer_in(text) ? "B" : "")).value_or(-1.0);
    return as_bytes(text, bytes, least, most, "such as 48GB, 512MiB or 4956160 (bytes)");
  });
}

Option& Option::rewrite(std::function<std::string(std::string& text)> refusal) {
  option_->transform(CLI::Validator(std::move(refusal), ""));
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
  Option option(app_->add_option(name, value, description));
  if constexpr (is_integer<T>) option.rewrite(with_digits);
  return option;
}

template Option OptionParser::add(const std::string&, std::string&, const std::string&);
template Option OptionParser::add(const std::string&, std::optional<std::string>&, const std::string&);
template Option OptionParser::add(const std::string&, int&, const std::string&);
template Option OptionParser::add(const std::string&, std::int64_t&, const std::string&);
template Option OptionParser::add(const std::string&, std::uint64_t&, const std::string&);
template Option OptionParser::add(const std::string&, double&, const std::string&);
template Option OptionParser::add(const std::string&, std::vector<std::string>&, const std::string&);
template Option OptionParser::add(const std::string&, std::vector<std::int64_t>&, const std::string&);

Option OptionParser::add_flag(const std::string& name, bool& value, const std::string& description) {
  return Option(app_->add_flag(name, value, description));
}

void OptionParser::add_flag(const std::string& name, std::function<void()> given, const std::string& description) {
  app_->add_flag_callback(name, std::move(given), description);
}

std::string folded(const std::string& text, std::size_t column, std::size_t indent, std::size_t width) {
  std::string lines;
  bool at_start = true;
  for (std::size_t first = 0; first < text.size();) {
    const std::size_t end = std::min(text.find(' ', first), text.size());
    const std::size_t extent = end - first;
    if (!at_start && column + 1 + extent > width) {
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

std::string option_lines(const std::string& head, const std::string& text) {
  const std::string start = "  " + head;
  const std::string gap = start.size() + 2 > kTextColumn ? "\n" + std::string(kTextColumn, ' ')
                                                         : std::string(kTextColumn - start.size(), ' ');
  return start + gap + folded(text, kTextColumn, kTextColumn) + "\n";
}

bool asks_for_help(const std::string& argument) { return argument == "--help" || argument == "-h"; }

std::string exit_statuses() {
  return "Exit status: 0 done, 1 internal, or a difference (inspect, verify), 2 deck or\n"
         "usage, 3 bad input file, 4 write failed, 5 rank or communication lost,\n"
         "6 non-finite, 75 stopped on request (prints how to resume), 130 second SIGINT.\n";
}

void OptionParser::parse(const Arguments& arguments) {
  CLI::App& app = *app_;
  app.set_help_flag();
  if (std::any_of(arguments.begin(), arguments.end(), asks_for_help)) throw help_of(app, keys_);
  std::vector<std::string> reversed(arguments.rbegin(), arguments.rend());
  try {
    app.parse(reversed);
  } catch (const CLI::RequiredError& error) {
    const std::string text = error.what();  // "deck is required"
    std::string name = text.substr(0, text.find(' '));
    for (char& letter : name) letter = static_cast<char>(std::toupper(static_cast<unsigned char>(letter)));
    refuse(app, name + " is missing; example: kozero " + command_named(app.get_name()).example);
  } catch (const CLI::ParseError& error) {
    refuse_unknown(arguments, app);
    refuse(app, error.what());
  }
}

}  // namespace kozero::program
