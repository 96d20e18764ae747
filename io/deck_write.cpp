// SPDX-FileCopyrightText: The KoZeRO authors
// SPDX-License-Identifier: Apache-2.0
// deck_write.cpp: a Deck as text: the resolved deck.toml, the fingerprint that ranks compare, the reference of keys.
#include <fstream>
#include <sstream>

#include <kozero/core/error.hpp>
#include <kozero/io/deck.hpp>
#include <kozero/io/deck_schema.hpp>

namespace kozero::io {
namespace {

bool is_truth_value(const DeckRow& row) {
  Deck deck;
  return std::holds_alternative<bool*>(row.value_in(deck));
}

/// Whether a key has no value of its own: the default means "not given", or the preset decides. A truth value always
/// is one.
bool is_silent(const Deck& deck, const DeckRow& row) {
  if (deck.is_set(row.key)) return false;
  const bool preset_decides = section_of(row.key) == "model" && deck.model.preset != "none";
  return (preset_decides && row.key != "model.arch") ||
         (!row.when_silent.empty() && !is_truth_value(row) && holds_default(deck, row));
}

/// A file's name may hold what TOML allows in no comment: line breaks, bytes that are no UTF-8.
std::string comment(std::string text) {
  for (char& letter : text) {
    if (letter < ' ' || letter > '~') letter = '?';
  }
  return text;
}

std::string line_of(const Deck& deck, const DeckRow& row) {
  if (is_silent(deck, row)) {
    return "# " + name_of(row.key) + ": " + (row.when_silent.empty() ? "the preset's" : row.when_silent);
  }
  const auto origin = deck.origins.find(row.key);
  const std::string from = origin == deck.origins.end() ? "default" : origin->second;
  return name_of(row.key) + " = " + text_in(deck, row) + "  # " + comment(from);
}

}  // namespace

std::string resolved_text(const Deck& deck) {
  std::string text = "# The resolved deck of a run: every value, and behind it where it came from.\n";
  std::string section;
  for (const auto& row : deck_schema()) {
    if (section_of(row.key) != section) {
      section = section_of(row.key);
      text += "\n[" + section + "]\n";
    }
    text += line_of(deck, row) + "\n";
  }
  return text;
}

void write_resolved(const Deck& deck, const std::string& path, const std::vector<std::string>& heading) {
  std::ofstream file(path, std::ios::binary);
  for (const auto& line : heading) file << "# " << comment(line) << "\n";
  if (!heading.empty()) file << "\n";
  file << resolved_text(deck);
  file.close();
  if (!file) throw Error(Failure::write, path + ": the resolved deck could not be written");
}

std::string fingerprint(const Deck& deck) {
  std::string text;
  for (const auto& row : deck_schema()) text += row.key + ": " + text_in(deck, row) + "\n";
  return text;
}

std::string first_difference(const std::string& a, const std::string& b) {
  std::istringstream lines_a(a);
  std::istringstream lines_b(b);
  std::string line_a;
  std::string line_b;
  while (std::getline(lines_a, line_a) && std::getline(lines_b, line_b)) {
    if (line_a != line_b) return line_a + " and " + line_b.substr(line_b.find(": ") + 2);
  }
  return a == b ? "" : "the number of keys";
}

std::string deck_reference() {
  std::string text;
  for (const auto& row : deck_schema()) {
    const std::string silent = row.when_silent.empty() ? text_in(Deck(), row) : row.when_silent;
    const std::string use = row.built == Built::later ? "not built yet" : accepted_text(row);
    text += row.key + ": " + row.help + " (default: " + silent + "); " + use + "\n";
  }
  return text;
}

}  // namespace kozero::io
