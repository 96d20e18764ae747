// SPDX-FileCopyrightText: The KoZeRO authors
// SPDX-License-Identifier: Apache-2.0
// keys.cpp: the commands `keys`, which prints a deck's keys, as a list or as a deck, and `completion`, which prints
// scripts for bash and zsh, made from the commands' own options and the deck's table of keys.
#include <fmt/format.h>
#include <algorithm>
#include <array>
#include <cctype>
#include <iostream>
#include <iterator>
#include <nlohmann/json.hpp>
#include <string_view>
#include <utility>

#include <kozero/commands/commands.hpp>
#include <kozero/core/error.hpp>
#include <kozero/program/arguments.hpp>
#include <kozero/program/option_parser.hpp>
#include "io/deck/schema.hpp"

namespace kozero::commands {

using program::Command;
using program::HelpAsked;
using program::JsonOutput;
using program::kTextColumn;
using program::OptionParser;

namespace {

std::string in_lower_case(std::string text) {
  for (char& letter : text) letter = static_cast<char>(std::tolower(static_cast<unsigned char>(letter)));
  return text;
}

/// The rows that match a word: the rows of that section; else the row to which another program's key corresponds, and
/// rows whose name contains the word or which have it as another program's value; else rows whose text contains the
/// word, unless it is another program's key that has no counterpart.
std::vector<io::DeckRow> found_by(const std::string& word) {
  const auto rows_where = [](const auto& fits) {
    std::vector<io::DeckRow> rows;
    std::copy_if(io::deck_schema().begin(), io::deck_schema().end(), std::back_inserter(rows), fits);
    return rows;
  };
  const std::string ours = io::key_of_peer(word);
  const std::string wanted = in_lower_case(word);
  auto rows = rows_where([&](const io::DeckRow& row) { return io::section_of(row.key) == word; });
  if (rows.empty()) {
    rows = rows_where([&](const io::DeckRow& row) {
      return row.key == ours || row.key.find(wanted) != std::string::npos ||
             !io::value_of_peer(row.key, wanted).empty();
    });
  }
  std::ranges::stable_partition(rows, [&](const io::DeckRow& row) { return row.key == ours; });
  if (!rows.empty() || !io::note_on_peer(word).empty()) return rows;
  return rows_where([&](const io::DeckRow& row) {
    return in_lower_case(row.help + " " + io::accepted_values(row)).find(wanted) != std::string::npos;
  });
}

std::string lines_of(const std::vector<io::DeckRow>& rows) {
  std::string text;
  std::string section;
  for (const auto& row : rows) {
    if (io::section_of(row.key) != section) {
      text += (section.empty() ? "[" : "\n[") + io::section_of(row.key) + "]\n";
      section = io::section_of(row.key);
    }
    text += program::option_lines(row.key, row.help);
    const std::string values = io::accepted_values(row) + " (default: " + io::default_of(row) + ")";
    text += std::string(kTextColumn, ' ') + program::folded(values, kTextColumn, kTextColumn) + "\n";
    for (const auto& column : io::columns_in_words(row)) {
      text += program::option_lines(column.key, column.help);
      text += std::string(kTextColumn, ' ') +
              program::folded(column.accepted + " (default: " + column.default_text + ")", kTextColumn, kTextColumn) +
              "\n";
    }
  }
  return text;
}

/// `note`: on the word; "" for none.
nlohmann::ordered_json json_of(const std::vector<io::DeckRow>& rows, const std::string& note) {
  auto list = nlohmann::ordered_json::array();
  for (const auto& row : rows) {
    list.push_back({{"key", row.key},
                    {"text", row.help},
                    {"accepted", io::accepted_values(row)},
                    {"default", io::default_of(row)},
                    {"first", row.is_first}});
    for (const auto& column : io::columns_in_words(row)) {
      list.push_back({{"key", column.key},
                      {"text", column.help},
                      {"accepted", column.accepted},
                      {"default", column.default_text},
                      {"first", false}});
    }
  }
  nlohmann::ordered_json json = {{"keys", list}};
  if (!note.empty()) json["note"] = note;
  return json;
}

/// Keys that every run gives: the values that make the deck of `keys --deck` complete.
constexpr std::array<std::pair<std::string_view, std::string_view>, 4> kExamples = {{
    {"run.steps", "1000"},
    {"model.preset", "\"tiny\""},
    {"data.text", "[\"inputs/text/persuasion.txt\"]"},
    {"train.global_batch", "16"},
}};

/// "" if there is none.
std::string_view example_of(const io::DeckRow& row) {
  const auto found = std::ranges::find(kExamples, row.key, [](const auto& each) { return each.first; });
  return found == kExamples.end() ? "" : found->second;
}

/// A key as a line of a deck. A key whose default is not a value ("#threads ="), or that presets define, is commented
/// out.
std::string assignment(const io::DeckRow& row) {
  const std::string name = io::name_of(row.key);
  if (const auto example = example_of(row); !example.empty()) return fmt::format("{} = {}", name, example);
  if (!row.default_text.empty()) return "#" + name + " =";
  return fmt::format("{}{} = {}", io::is_of_shape(row.key) ? "#" : "", name, io::default_of(row));
}

/// "seed of initial weights (integer >= 0)"; also the default, if the assignment does not say it.
std::string remark(const io::DeckRow& row) {
  const bool shows_default = !row.default_text.empty() || !example_of(row).empty();
  std::string text = fmt::format("{} ({}{})", row.help, io::accepted_values(row),
                                 shows_default ? "; default: " + io::default_of(row) : "");
  for (const auto& column : io::columns_in_words(row)) {
    text += fmt::format("; {}: {} ({}; default: {})", io::name_of(column.key.substr(column.key.find('[') + 2)),
                        column.help, column.accepted, column.default_text);
  }
  return text;
}

/// The rows as a deck: assignments on the left, remarks on the right. Reading it gives the defaults and kExamples.
std::string deck_of(const std::vector<io::DeckRow>& rows) {
  constexpr std::size_t kColumn = 32;
  constexpr std::size_t kDeckWidth = 120;
  const std::string margin = std::string(kColumn, ' ') + "# ";
  std::string text;
  std::string section;
  for (const auto& row : rows) {
    if (io::section_of(row.key) != section) {
      section = io::section_of(row.key);
      text += "\n[" + section + "]\n";
    }
    const std::string left = assignment(row);
    text += left + (left.size() < kColumn ? std::string(kColumn - left.size(), ' ') : "\n" + margin.substr(0, kColumn));
    std::string right = "# " + program::folded(remark(row), 0, 0, kDeckWidth - margin.size());
    for (auto end = right.find('\n'); end != std::string::npos; end = right.find('\n', end + 1)) {
      right.insert(end + 1, margin);
    }
    text += right + "\n";
  }
  return text;
}

constexpr const char* kDeckHeading =
    R"toml(# all_keys.toml: every key of a deck with its default. `kozero keys --deck` prints it.
# Behind each key are its meaning and, in parentheses, the accepted values. A line that begins with # has a key that is
# not given here. The keys that a run needs have examples: run.steps, model.preset, data.text and train.global_batch.
)toml";

/// The words to complete, shared by both shells' scripts, which differ in counting words and offering matches.
constexpr const char* kWords = R"sh(# Completion of kozero and kozero.sh in {0}; made by `kozero completion {0}`.
_kozero_keys="{1}"
_kozero_words() {{
  case $1 in
{2}  esac
}}
)sh";

constexpr const char* kBash = R"sh(_kozero() {
  local word=${COMP_WORDS[COMP_CWORD]} i=1 command=
  while ((i < COMP_CWORD)); do
    case ${COMP_WORDS[i]} in
      -n | --preset | --restarts | --hosts) ((i += 2)) ;;
      -*) ((i += 1)) ;;
      *) command=${COMP_WORDS[i]}; break ;;
    esac
  done
  [[ $command != bench || $((i + 1)) -ge COMP_CWORD ]] || command="bench ${COMP_WORDS[i + 1]}"
  COMPREPLY=($(compgen -W "$(_kozero_words "$command")" -- "$word"))
  if [[ ${COMPREPLY[0]} == *= ]]; then compopt -o nospace; fi
}
complete -o default -F _kozero kozero kozero.sh ./kozero.sh
)sh";

constexpr const char* kZsh = R"sh(_kozero() {
  local i=2 command=
  while ((i < CURRENT)); do
    case ${words[i]} in
      -n | --preset | --restarts | --hosts) ((i += 2)) ;;
      -*) ((i += 1)) ;;
      *) command=${words[i]}; break ;;
    esac
  done
  if [[ $command == bench ]] && ((i + 1 < CURRENT)); then command="bench ${words[i + 1]}"; fi
  local -a all=(${=$(_kozero_words "$command")})
  compadd -- ${all:#*=}
  compadd -S '' -- ${(M)all:#*=}
  [[ -z $command ]] || _files
}
autoload -Uz compinit && { (( $+functions[compdef] )) || compinit }
compdef _kozero kozero kozero.sh ./kozero.sh
)sh";

std::string joined_by_blanks(const std::vector<std::string>& words) {
  std::string text;
  for (const auto& word : words) text += (text.empty() ? "" : " ") + word;
  return text;
}

/// "section.key=" of all keys.
std::string keys_of_decks() {
  std::vector<std::string> keys;
  for (const auto& row : io::deck_schema()) keys.push_back(row.key + "=");
  return joined_by_blanks(keys);
}

/// The words that a command accepts: for a benchmark from its row, for others from --help.
std::string words_behind(const Command& command, const distributed::Environment& environment) {
  if (!command.words.empty()) {
    const std::size_t keys = command.words.find("KEYS");
    return command.words.substr(0, keys) + (keys == std::string::npos ? "" : "$_kozero_keys");
  }
  try {
    function_of(command.name)(environment, {"--help"});
  } catch (const HelpAsked& help) {
    return joined_by_blanks(help.options) + (help.takes_overrides ? " $_kozero_keys" : "");
  }
  return "";
}

std::string words_of_commands(const distributed::Environment& environment) {
  std::vector<std::string> names;
  std::string cases;
  for (const auto* list : {&program::all_commands(), &program::benchmarks()}) {
    for (const auto& command : *list) {
      if (command.summary.empty() || command.name == "help") continue;
      if (list == &program::all_commands()) names.push_back(command.name);
      const std::string own = command.name == "completion" ? "bash zsh" : words_behind(command, environment);
      cases += fmt::format("    '{}') echo \"{} --help\" ;;\n", command.name, own);
    }
  }
  return fmt::format("    '') echo \"{} help --help\" ;;\n", joined_by_blanks(names)) + cases;
}

}  // namespace

void keys(const distributed::Environment& environment, const Arguments& arguments) {
  OptionParser parser("keys");
  std::string word;
  bool all = false;
  bool as_deck = false;
  JsonOutput json;
  parser.add("word", word);
  parser.add_flag("--all", all, "all keys, not only those that a first reader needs");
  parser.add_flag("--deck", as_deck, "a deck with all keys, or those of the section or word, and their defaults");
  json.add_to(parser);
  parser.parse(arguments);
  if (environment.rank() != 0) return;
  std::vector<io::DeckRow> rows = word.empty() ? io::deck_schema() : found_by(word);
  const std::string note = io::note_on_peer(word);
  if (rows.empty() && note.empty()) {
    const auto names = io::deck_sections();
    throw Error(Failure::deck,
                "keys: no key's name or text has \"" + word + "\"; accepted: a section (" + io::joined(names) +
                    ") or a word; --all lists all keys",
                Error::Seen::by_all_ranks);
  }
  if (json.is_asked()) return json.print(json_of(rows, note));
  if (as_deck) {
    std::cout << (word.empty() ? kDeckHeading : "") << deck_of(rows);
    return;
  }
  const std::size_t total = io::deck_schema().size();
  if (word.empty() && !all) std::erase_if(rows, [](const io::DeckRow& row) { return !row.is_first; });
  std::cout << lines_of(rows);
  if (!note.empty()) std::cout << program::folded("note: " + note, 0, 6) << "\n";
  if (rows.size() < total && word.empty()) {
    const std::string text = fmt::format(
        "These are {} of {} keys. `kozero keys --all` has all of them, `kozero keys zero` those of a section, `kozero "
        "keys WORD` those whose name or text has the word. Sizes and times may have a unit, and integers may be "
        "written as 1e3.",
        rows.size(), total);
    std::cout << "\n" << program::folded(text, 0, 0) << "\n";
  }
}

/// Prints a script that completes commands, options and keys.
///   bash: source <(kozero completion bash)         zsh: source <(kozero completion zsh)
void completion(const distributed::Environment& environment, const Arguments& arguments) {
  OptionParser parser("completion");
  std::string shell;
  parser.add("shell", shell).required().one_of({"bash", "zsh"});
  parser.parse(arguments);
  if (environment.rank() != 0) return;
  std::cout << fmt::format(kWords, shell, keys_of_decks(), words_of_commands(environment))
            << (shell == "bash" ? kBash : kZsh) << std::flush;
}

}  // namespace kozero::commands
