// SPDX-FileCopyrightText: The KoZeRO authors
// SPDX-License-Identifier: Apache-2.0
// deck_apply.cpp: one given key into the deck: find its row, store a value of its type, check it against the row.
#include <algorithm>

#include <kozero/io/deck_apply.hpp>
#include <kozero/io/deck_refusal.hpp>
#include <kozero/io/deck_schema.hpp>

namespace kozero::io {
namespace {

/// Stores a TOML value of the member's own type; false where it has another.
struct Store {
  const toml::node& node;

  bool operator()(bool* out) const { return exactly(node.as_boolean(), *out); }
  bool operator()(std::int64_t* out) const { return exactly(node.as_integer(), *out); }
  bool operator()(std::string* out) const { return exactly(node.as_string(), *out); }
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
  refuse(given.origin, "[" + given.section + "]",
         "no such section; accepted are " + joined(sections) + did_you_mean(given.section, sections));
}

[[noreturn]] void refuse_key(const Given& given) {
  const std::string what = given.key() + " = " + shown(*given.value);
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
         "no such key; accepted in [" + given.section + "] are " + joined(names) + did_you_mean(given.name, names));
}

const DeckRow& row_of(const Given& given) {
  if (!given.section.empty() && !is_section(given.section)) refuse_section(given);
  const DeckRow* row = find_row(given.key());
  if (row == nullptr) refuse_key(given);
  return *row;
}

/// The later words, where the given one is among them.
std::string not_yet(const DeckRow& row, const toml::node& value) {
  const auto& later = row.accepted.later;
  const auto* text = value.as_string();
  if (text == nullptr || std::find(later.begin(), later.end(), text->get()) == later.end()) return "";
  return "not built yet in this version (" + joined(later) + (later.size() == 1 ? " comes later); " : " come later); ");
}

std::string nearest_word(const DeckRow& row, const toml::node& value) {
  const auto* text = value.as_string();
  return text == nullptr ? "" : did_you_mean(text->get(), row.accepted.words);
}

}  // namespace

void apply_given(const Given& given, Deck& deck) {
  if (given.name.empty() && is_section(given.section)) return;
  const DeckRow& row = row_of(given);
  const bool stored = std::visit(Store{*given.value}, row.value_in(deck));
  const std::string what = row.key + " = " + shown(*given.value);
  if (row.built == Built::later && !(stored && holds_default(deck, row))) {
    refuse(given.origin, what, "not built yet in this version; remove the key");
  }
  if (!stored || !accepts(row, row.value_in(deck))) {
    refuse(given.origin, what, not_yet(row, *given.value) + accepted_text(row) + nearest_word(row, *given.value));
  }
  deck.origins[row.key] = given.origin;
}

}  // namespace kozero::io
