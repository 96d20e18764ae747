// SPDX-FileCopyrightText: The KoZeRO authors
// SPDX-License-Identifier: Apache-2.0
// toml_keys.cpp: parses a TOML text or an override into given keys.
#include <algorithm>
#include <functional>
#include <map>
#include <optional>
#include <sstream>
#include <utility>

#include "io/deck/check.hpp"
#include "io/deck/schema.hpp"
#include "io/deck/toml_keys.hpp"

namespace kozero::io {

namespace {

std::string trimmed(std::string_view text) {
  const auto first = text.find_first_not_of(" \t\r");
  if (first == std::string_view::npos) return "";
  return std::string(text.substr(first, text.find_last_not_of(" \t\r") - first + 1));
}

/// "run" for "[run]  # comment" and for "[[run]]"; "" if the line is not a header.
std::string header_in(const std::string& line) {
  const std::size_t begin = line.starts_with("[[") ? 2 : 1;
  const auto end = line.find(']');
  const bool is_header = line.starts_with('[') && end != std::string::npos;
  return is_header ? trimmed(std::string_view(line).substr(begin, end - begin)) : "";
}

/// A key or a [section] that occurs twice in a text.
struct Repetition {
  std::string name;  ///< "run.steps", "[run]"
  std::size_t first_line = 0;
};

/// The repetition if line `wanted`, counted from 1, repeats a key or section of an earlier line.
std::optional<Repetition> repetition_at(const std::string& text, std::size_t wanted) {
  std::map<std::string, std::size_t> first_lines;
  std::size_t tables_of_lists = 0;
  std::istringstream lines(text);
  std::string section;
  std::string line;
  for (std::size_t number = 1; number <= wanted && std::getline(lines, line); ++number) {
    line = trimmed(line);
    const auto equals = line.find('=');
    const std::string header = header_in(line);
    std::string name;
    if (!header.empty() && line.starts_with("[[")) {
      section = header + "[" + std::to_string(tables_of_lists++) + "]";  // each table has its own keys
    } else if (!header.empty()) {
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

/// The length of the TOML string at the front of `text`, including its quotes; to the end if it is not closed.
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

/// Whether `name` in `section` is a section of its own: [model.lora].
bool is_inner_section(const std::string& section, std::string_view name) {
  const auto sections = deck_sections();
  return std::ranges::find(sections, section + "." + std::string(name)) != sections.end();
}

/// A pointer to a node that keeps its table alive. A copy of the node would have no line.
std::shared_ptr<toml::node> inside(const std::shared_ptr<toml::table>& table, toml::node& node) {
  return {table, &node};
}

/// The text as one TOML value; nullopt if it is anything else.
std::optional<Given> value_of(const std::string& text) {
  if (line_too_deep(text)) return std::nullopt;
  try {
    const auto table = std::make_shared<toml::table>(toml::parse("value = " + text));
    if (table->size() != 1 || !table->contains("value")) return std::nullopt;
    return Given{"", "", inside(table, *table->get("value")), kCommandLine};
  } catch (const toml::parse_error&) {
    return std::nullopt;
  }
}

/// A list whose words have lost their quotes in a shell: [a, b] is read as ["a", "b"].
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
  const auto table = std::make_shared<toml::table>(parsed(text, source));
  std::vector<std::pair<toml::source_index, Given>> found;
  const auto add = [&](const std::string& section, const std::string& name, const toml::key& key, toml::node& value) {
    const auto line = key.source().begin.line;
    found.push_back({line, Given{section, name, inside(table, value), source + ":" + std::to_string(line)}});
  };
  const std::function<void(const std::string&, const toml::key&, toml::table&)> add_section =
      [&](const std::string& section, const toml::key& key, toml::table& keys) {
        if (keys.empty()) add(section, "", key, keys);
        for (auto&& [name, value] : keys) {
          toml::table* const inner = is_inner_section(section, name.str()) ? value.as_table() : nullptr;
          if (inner != nullptr) {
            add_section(section + "." + std::string(name.str()), name, *inner);
          } else {
            add(section, std::string(name.str()), name, value);
          }
        }
      };
  for (auto&& [section, keys] : *table) {
    toml::table* below = keys.as_table();
    const bool is_curriculum = section.str() == "curriculum";  // [[curriculum]] is short for [[run.curriculum]]
    if (below == nullptr) add(is_curriculum ? "run" : "", std::string(section.str()), section, keys);
    if (below != nullptr) add_section(std::string(section.str()), section, *below);
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
  auto dot = key.find('.');
  const auto inner = key.find('.', dot == std::string::npos ? dot : dot + 1);
  if (inner != std::string::npos && is_inner_section(key.substr(0, dot), key.substr(dot + 1, inner - dot - 1)))
    dot = inner;
  const std::string outer = key == "curriculum" ? "run" : "";
  given->section = dot == std::string::npos ? outer : key.substr(0, dot);
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

}  // namespace kozero::io
