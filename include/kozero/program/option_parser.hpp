// SPDX-FileCopyrightText: The KoZeRO authors
// SPDX-License-Identifier: Apache-2.0
// option_parser.hpp: the options of a command and its --help. CLI11 parses them; only option_parser.cpp includes it,
// since its header takes longer to compile than most commands.
//   OptionParser parser("plan");                                           the name of a row of the command table
//   parser.add("--ranks", n, "ranks to plan for").type_name("N").positive();
//   parser.parse(arguments);
#pragma once
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <kozero/program/command.hpp>

namespace CLI {
class App;
class Option;
}  // namespace CLI

namespace kozero::program {

/// The integer that is all of `text`; nullopt for another text.
std::optional<std::int64_t> integer_in(const std::string& text);

/// One option of a parser, which must outlive it. Every member function but is_given() returns the option itself.
class Option {
 public:
  explicit Option(CLI::Option* option) : option_(option) {}

  Option& type_name(const std::string& name);     ///< after the option in --help: "N"
  Option& default_text(const std::string& text);  ///< instead of the variable's value
  Option& required();
  Option& at_least_values(int least);  ///< accepts `least` values or more
  Option& delimiter(char separator);   ///< between values
  Option& excludes(const Option& other);

  // Checks of the given text.
  Option& positive();
  Option& between(std::int64_t least, std::int64_t most);
  Option& between(double least, double most);
  Option& one_of(const std::vector<std::string>& words);
  /// A size with a unit, such as "48GB" or "512MiB"; the variable becomes its bytes, in [least, most].
  Option& size(std::int64_t least, std::int64_t most);
  /// The same, or a plain number of bytes.
  Option& size_or_bytes(std::int64_t least, std::int64_t most);
  Option& check(std::function<std::string(const std::string& text)> refusal);  ///< which is "" for an accepted text
  /// As check(), before all checks; `refusal` may change the text.
  Option& rewrite(std::function<std::string(std::string& text)> refusal);

  [[nodiscard]] bool is_given() const;

 private:
  CLI::Option* option_;
};

class OptionParser {
 public:
  explicit OptionParser(const std::string& command);
  ~OptionParser();
  OptionParser(const OptionParser&) = delete;
  OptionParser& operator=(const OptionParser&) = delete;

  /// Parses into `value`, which must outlive parse(). A name without "--" is a positional argument. Integers may be
  /// written as 1e3. T: std::string, std::optional of it, int, std::int64_t, std::uint64_t, double, std::vector of
  /// std::string or std::int64_t.
  template <class T>
  Option add(const std::string& name, T& value, const std::string& description = "");
  Option add_flag(const std::string& name, bool& value, const std::string& description);
  /// Calls `given` if the flag is given.
  void add_flag(const std::string& name, std::function<void()> given, const std::string& description);
  /// --help has a line for each of these keys of a deck.
  void show_keys(std::vector<std::string> keys) { keys_ = std::move(keys); }

  /// Throws HelpAsked if the arguments contain --help or -h; for wrong arguments throws Error(deck, seen by all ranks)
  /// with the reason and the command's usage.
  void parse(const Arguments& arguments);

 private:
  std::unique_ptr<CLI::App> app_;
  std::vector<std::string> keys_;
};

/// Thrown for --help: not an error, but the command does not run.
struct HelpAsked {
  std::string text;
  std::vector<std::string> options;  ///< "--json", ... of the command
  bool takes_overrides = false;      ///< section.key=value
};

bool asks_for_help(const std::string& argument);

constexpr std::size_t kTextColumn = 26;  // of a description
constexpr std::size_t kWidth = 80;

/// Words of `text` in lines of `width` columns: the first begins at `column`, the others at `indent`.
std::string folded(const std::string& text, std::size_t column, std::size_t indent, std::size_t width = kWidth);

/// "  --steps N              steps to compute ..."
std::string option_lines(const std::string& head, const std::string& text);

/// The meanings of all exit statuses, for --help.
std::string exit_statuses();

}  // namespace kozero::program
