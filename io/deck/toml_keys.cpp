// SPDX-FileCopyrightText: The KoZeRO authors
// SPDX-License-Identifier: Apache-2.0
// toml_keys.cpp: parses TOML into given keys, and stores each in the member of its row of the schema.
#include <algorithm>
#include <cmath>
#include <map>
#include <optional>
#include <sstream>
#include <utility>

#include "io/deck/check.hpp"
#include "io/deck/schema.hpp"
#include "io/deck/toml_keys.hpp"

namespace kozero::io {

// Which keys a TOML text or an override gives.

namespace {

std::shared_ptr<toml::node> copy_of(const toml::node& value) {
  return value.visit([](const auto& held) -> std::shared_ptr<toml::node> {
    return std::make_shared<std::decay_t<decltype(held)>>(held);
  });
}

std::string trimmed(std::string_view text) {
  const auto first = text.find_first_not_of(" \t\r");
  if (first == std::string_view::npos) return "";
  return std::string(text.substr(first, text.find_last_not_of(" \t\r") - first + 1));
}

/// "run" of "[run]  # comment", "" where the line is no header.
std::string header_in(const std::string& line) {
  const auto end = line.find(']');
  const bool is_header = line.starts_with('[') && !line.starts_with("[[") && end != std::string::npos;
  return is_header ? trimmed(std::string_view(line).substr(1, end - 1)) : "";
}

/// A key or a [section] that a text has a second time.
struct Repetition {
  std::string name;  ///< "run.steps", "[run]"
  std::size_t first_line = 0;
};

/// The repetition that `wanted`, counted from 1, is the second line of; nothing where it repeats no line before.
std::optional<Repetition> repetition_at(const std::string& text, std::size_t wanted) {
  std::map<std::string, std::size_t> first_lines;
  std::istringstream lines(text);
  std::string section;
  std::string line;
  for (std::size_t number = 1; number <= wanted && std::getline(lines, line); ++number) {
    line = trimmed(line);
    const auto equals = line.find('=');
    const std::string header = header_in(line);
    std::string name;
    if (!header.empty()) {
      section = header;
      name = "[" + header + "]";
    } else if (!line.starts_with('#') && equals != std::string::npos) {
      name = (section.empty() ? "" : section + ".") + trimmed(std::string_view(line).substr(0, equals));
    }
    if (name.empty()) continue;
    const auto [known, is_first] = first_lines.emplace(name, number);
    if (number == wanted && !is_first) return Repetition{name, known->second};
  }
  return std::nullopt;
}

/// The length of the TOML string at the front of `text`, its quotes included; to the end if it is not closed.
std::size_t string_length(std::string_view text) {
  const bool is_literal = text[0] == '\'';
  const std::string quotes(text.starts_with(is_literal ? "\'\'\'" : "\"\"\"") ? 3 : 1, text[0]);
  for (std::size_t i = quotes.size(); i < text.size(); ++i) {
    if (!is_literal && text[i] == '\\') {
      ++i;
    } else if (text.substr(i).starts_with(quotes)) {
      return i + quotes.size();
    } else if (quotes.size() == 1 && text[i] == '\n') {
      return i;
    }
  }
  return text.size();
}

toml::table parsed(const std::string& text, const std::string& source) {
  if (const auto line = line_too_deep(text)) {
    refuse(source + ":" + std::to_string(*line), "",
           "it nests more than " + std::to_string(kDeepest) + " deep; accepted: keys below a [section]");
  }
  try {
    return toml::parse(text);
  } catch (const toml::parse_error& error) {
    const auto line = error.source().begin.line;
    const std::string where = source + ":" + std::to_string(line);
    if (const auto repeated = repetition_at(text, line)) {
      refuse(where, repeated->name,
             "given twice; the first is in line " + std::to_string(repeated->first_line) + "; remove one");
    }
    refuse(where, "", "no TOML: " + std::string(error.description()));
  }
}

/// The value of "key = TEXT", where TEXT is one TOML value and nothing more.
std::optional<Given> value_of(const std::string& text) {
  if (line_too_deep(text)) return std::nullopt;
  try {
    const toml::table table = toml::parse("value = " + text);
    if (table.size() != 1 || !table.contains("value")) return std::nullopt;
    return Given{"", "", copy_of(*table.get("value")), kCommandLine};
  } catch (const toml::parse_error&) {
    return std::nullopt;
  }
}

/// "[a, b]" for "[\"a\", \"b\"]": a list of words that stand without quotes, as a shell leaves them.
std::optional<Given> list_of_words(const std::string& text) {
  if (text.size() < 2 || text.front() != '[' || text.back() != ']') return std::nullopt;
  std::string list;
  std::istringstream words(text.substr(1, text.size() - 2));
  for (std::string word; std::getline(words, word, ',');) {
    word = trimmed(word);
    const bool is_quoted = word.starts_with('"') || word.starts_with('\'');
    list += (list.empty() ? "" : ", ") + (is_quoted ? word : toml_string(word));
  }
  return value_of("[" + list + "]");
}

}  // namespace

std::optional<std::size_t> line_too_deep(const std::string& text) {
  std::size_t line = 1;
  int brackets = 0;
  int parts = 0;
  for (std::size_t i = 0; i < text.size(); ++i) {
    const char letter = text[i];
    if (letter == '"' || letter == '\'') {
      const std::size_t length = string_length(std::string_view(text).substr(i));
      line += static_cast<std::size_t>(std::count(text.begin() + static_cast<std::ptrdiff_t>(i),
                                                  text.begin() + static_cast<std::ptrdiff_t>(i + length), '\n'));
      i += length - 1;
      continue;
    }
    if (letter == '#') {
      i = std::min(text.find('\n', i), text.size()) - 1;
      continue;
    }
    if (letter == '.') {
      ++parts;
    } else if (letter != ' ' && std::string_view("\n,=[]{}").find(letter) != std::string_view::npos) {
      parts = 0;
    }
    if (letter == '[' || letter == '{') ++brackets;
    if (letter == ']' || letter == '}') --brackets;
    if (letter == '\n') ++line;
    if (brackets > kDeepest || parts > kDeepest) return line;
  }
  return std::nullopt;
}

std::vector<Given> given_in_text(const std::string& text, const std::string& source) {
  std::vector<std::pair<toml::source_index, Given>> found;
  const auto add = [&](const std::string& section, const std::string& name, const toml::key& key,
                       const toml::node& value) {
    const auto line = key.source().begin.line;
    found.push_back({line, Given{section, name, copy_of(value), source + ":" + std::to_string(line)}});
  };
  const toml::table table = parsed(text, source);
  for (const auto& [section, keys] : table) {
    const toml::table* inside = keys.as_table();
    if (inside == nullptr) add("", std::string(section.str()), section, keys);
    if (inside == nullptr) continue;
    if (inside->empty()) add(std::string(section.str()), "", section, keys);
    for (const auto& [name, value] : *inside) add(std::string(section.str()), std::string(name.str()), name, value);
  }
  std::stable_sort(found.begin(), found.end(), [](const auto& a, const auto& b) { return a.first < b.first; });
  std::vector<Given> given;
  for (auto& [line, each] : found) given.push_back(std::move(each));
  return given;
}

Given given_in_override(const std::string& override_text) {
  const auto equals = override_text.find('=');
  if (equals == std::string::npos) refuse(kCommandLine, override_text, "overrides are written section.key=value");
  const std::string key = override_text.substr(0, equals);
  const std::string text = override_text.substr(equals + 1);
  auto given = value_of(text);
  if (!given) given = list_of_words(text);
  if (!given) given = value_of(toml_string(text));
  if (!given) refuse(kCommandLine, key, "the value is neither TOML nor UTF-8 text");
  const auto dot = key.find('.');
  given->section = dot == std::string::npos ? "" : key.substr(0, dot);
  given->name = dot == std::string::npos ? key : key.substr(dot + 1);
  return *given;
}

std::string shown(const toml::node& value) {
  if (const auto* text = value.as_string()) return toml_string(text->get());
  if (const auto* number = value.as_integer()) return std::to_string(number->get());
  if (const auto* number = value.as_floating_point()) return toml_number(number->get());
  if (const auto* truth = value.as_boolean()) return truth->get() ? "true" : "false";
  std::vector<std::string> texts;
  if (const auto* table = value.as_table()) {
    for (const auto& [key, element] : *table) texts.push_back(std::string(key.str()) + " = " + shown(element));
    std::string text = "{";
    text += joined(texts);
    return text += "}";
  }
  if (!value.is_array()) return "a date or time";
  for (const auto& element : *value.as_array()) texts.push_back(shown(element));
  return bracketed(texts);
}

// One given key into the deck: find its row, store a value of its type, check it against the row.

namespace {

constexpr double kExact = 0x1p53;  // whole numbers below it are exact in a double

/// Stores a TOML value of the member's own type; false if the value has another type. Integers may be written as 1e3.
struct Store {
  const toml::node& node;
  bool numbers_as_text = false;  ///< a whole number is a text, too

  bool operator()(bool* out) const { return exactly(node.as_boolean(), *out); }
  bool operator()(std::int64_t* out) const {
    const auto* number = node.as_floating_point();
    if (number == nullptr) return exactly(node.as_integer(), *out);
    if (number->get() != std::floor(number->get()) || std::abs(number->get()) >= kExact) return false;
    *out = static_cast<std::int64_t>(number->get());
    return true;
  }
  bool operator()(std::string* out) const {
    if (numbers_as_text && node.is_integer()) *out = std::to_string(node.as_integer()->get());
    return (numbers_as_text && node.is_integer()) || exactly(node.as_string(), *out);
  }
  bool operator()(double* out) const {
    return exactly(node.as_floating_point(), *out) || exactly(node.as_integer(), *out);
  }
  bool operator()(std::vector<std::string>* out) const {
    out->assign(1, "");
    if (node.is_string()) return (*this)(&out->front());
    const toml::array* array = node.as_array();
    if (array == nullptr) return false;
    out->resize(array->size());
    std::size_t index = 0;
    return std::all_of(array->begin(), array->end(), [&](const auto& each) { return Store{each}(&(*out)[index++]); });
  }
  bool operator()(std::array<double, 2>* out) const {
    const toml::array* array = node.as_array();
    return array != nullptr && array->size() == 2 && Store{*array->get(0)}(&(*out)[0]) &&
           Store{*array->get(1)}(&(*out)[1]);
  }
  bool operator()(RopeScalingKeys* out) const {
    *out = {};
    std::string text;
    if (node.is_string()) return (*this)(&text) && text == "none";
    const toml::table* table = node.as_table();
    if (table == nullptr || !table->contains("type") || !table->contains("factor")) return false;
    return std::all_of(table->begin(), table->end(),
                       [&](const auto& each) { return Store{each.second}.member(each.first.str(), *out); });
  }

 private:
  template <class TomlValue, class T>
  static bool exactly(const TomlValue* value, T& out) {
    if (value != nullptr) out = static_cast<T>(value->get());
    return value != nullptr;
  }

  /// One key of the table under rope_scaling; false where there is no such.
  bool member(std::string_view key, RopeScalingKeys& out) const {
    std::string type;
    if (key == "type") return (*this)(&type) && type == "llama3";
    if (key == "factor") return (*this)(&out.factor);
    if (key == "low_freq_factor") return (*this)(&out.low_freq_factor);
    if (key == "high_freq_factor") return (*this)(&out.high_freq_factor);
    return key == "original_seq" && (*this)(&out.original_seq);
  }
};

std::vector<std::string> keys_named(const std::string& name) {
  std::vector<std::string> keys;
  for (const auto& row : deck_schema()) {
    if (name_of(row.key) == name) keys.push_back(row.key);
  }
  return keys;
}

bool is_section(const std::string& name) {
  const auto sections = deck_sections();
  return std::find(sections.begin(), sections.end(), name) != sections.end();
}

[[noreturn]] void refuse_section(const Given& given) {
  const auto sections = deck_sections();
  if (given.section == "lora" || given.section == "peft") {
    refuse(given.origin, "[" + given.section + "]", "no such section: KoZeRO has no LoRA, it trains all weights");
  }
  const std::string ours = key_of_peer(given.name);
  if (!ours.empty()) refuse(given.origin, given.key(), "no such key; did you mean " + ours + "?");
  refuse(given.origin, "[" + given.section + "]",
         "no such section; accepted are " + joined(sections) + did_you_mean(given.section, sections));
}

[[noreturn]] void refuse_key(const Given& given) {
  const std::string what = given.key() + " = " + shown(*given.value);
  const std::string ours = key_of_peer(given.name);
  if (!ours.empty()) refuse(given.origin, what, "no such key; did you mean " + ours + "?");
  if (given.section.empty() && is_section(given.name)) {
    refuse(given.origin, what, "a section, not a key; accepted is [" + given.name + "] with keys below it");
  }
  const auto elsewhere = keys_named(given.name);
  if (!elsewhere.empty()) refuse(given.origin, what, "no such key; did you mean " + elsewhere.front() + "?");
  if (given.section.empty()) {
    refuse(given.origin, what, "no such key; keys belong to a section, accepted are " + joined(deck_sections()));
  }
  const auto names = names_in(given.section);
  refuse(given.origin, what,
         "no such key; accepted in [" + given.section + (names.size() == 1 ? "] is " : "] are ") + joined(names) +
             did_you_mean(given.name, names));
}

const DeckRow& row_of(const Given& given) {
  if (!given.section.empty() && !is_section(given.section)) refuse_section(given);
  const DeckRow* row = find_row(given.key());
  if (row == nullptr) refuse_key(given);
  return *row;
}

std::string nearest_word(const DeckRow& row, const toml::node& value) {
  const auto* text = value.as_string();
  const std::string ours = value_of_peer(row.key, text == nullptr ? shown(value) : text->get());
  if (!ours.empty()) return "; did you mean " + ours + "?";
  return text == nullptr ? "" : did_you_mean(text->get(), row.accepted.words);
}

/// The value, or the number that a text with a unit means: "1GiB" is 1024 for zero.offload_mib. What must be an integer
/// is rounded down.
std::shared_ptr<toml::node> in_units_of(const DeckRow& row, const std::shared_ptr<toml::node>& value) {
  const auto* text = value->as_string();
  const auto number = text == nullptr ? std::nullopt : number_with_unit(row, text->get());
  if (!number) return value;
  Deck deck;
  const bool is_integer = std::holds_alternative<std::int64_t*>(row.value_in(deck));
  return std::make_shared<toml::value<double>>(is_integer ? std::floor(*number) : *number);
}

/// Whether a text holds a NUL, which no path can.
bool has_nul(const toml::node& value) {
  if (const auto* text = value.as_string()) return text->get().find('\0') != std::string::npos;
  const auto* array = value.as_array();
  return array != nullptr && std::any_of(array->begin(), array->end(), [](const auto& each) { return has_nul(each); });
}

}  // namespace

void apply_given(const Given& given, Deck& deck) {
  if (given.name.empty() && is_section(given.section)) return;
  const DeckRow& row = row_of(given);
  const std::string what = row.key + " = " + shown(*given.value);
  if (has_nul(*given.value)) refuse(given.origin, what, "it holds a NUL character; accepted: text without one");
  const auto value = in_units_of(row, given.value);
  const bool stored = std::visit(Store{*value, row.accepted.takes_numbers()}, row.value_in(deck));
  if (!stored || !accepts(row, row.value_in(deck))) {
    refuse(given.origin, what, "accepted: " + accepted_values(row) + nearest_word(row, *given.value));
  }
  deck.origins[row.key] = given.origin;
}

}  // namespace kozero::io
