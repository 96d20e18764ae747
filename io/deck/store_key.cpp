// SPDX-FileCopyrightText: The KoZeRO authors
// SPDX-License-Identifier: Apache-2.0
// store_key.cpp: stores a given key in the deck: finds its row, stores a value of its type, checks it against the row.
#include <algorithm>
#include <charconv>
#include <cmath>
#include <optional>

#include "io/deck/check.hpp"
#include "io/deck/schema.hpp"
#include "io/deck/toml_keys.hpp"

namespace kozero::io {
namespace {

constexpr double kExact = 0x1p53;  // integers below it are exact in a double

/// Stores a TOML value in a member; false if the value has another type. Integers may be written as 1e3.
struct Store {
  const toml::node& node;

  bool operator()(bool* out) const { return exactly(node.as_boolean(), *out); }
  bool operator()(std::int64_t* out) const {
    const auto* number = node.as_floating_point();
    if (number == nullptr) return exactly(node.as_integer(), *out);
    if (number->get() != std::floor(number->get()) || std::abs(number->get()) >= kExact) return false;
    *out = static_cast<std::int64_t>(number->get());
    return true;
  }
  bool operator()(std::string* out) const { return exactly(node.as_string(), *out); }
  /// A number may be quoted.
  bool operator()(WordOrNumber* out) const {
    std::int64_t number = 0;
    std::string word;
    if ((*this)(&number)) {
      *out = number;
    } else if ((*this)(&word) && !word.empty()) {
      const auto [end, problem] = std::from_chars(word.data(), word.data() + word.size(), number);
      const bool is_number = problem == std::errc() && end == word.data() + word.size();
      *out = is_number ? WordOrNumber(number) : WordOrNumber(word);
    } else {
      return false;
    }
    return true;
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
  template <ListTable Keys>
  bool operator()(std::vector<Keys>* /*out*/) const {
    return false;  // store_tables stores it
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

  /// Stores one key of the table rope_scaling; false if there is no such key or its value has another type.
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
    refuse(given.origin, "[" + given.section + "]", "no such section; did you mean [model.lora]?");
  }
  if (given.section == "sweep" || given.section == "set" || given.section == "axes") {
    const std::string file = given.origin.substr(0, given.origin.rfind(':'));
    refuse(given.origin, "[" + given.section + "]",
           given.origin == kCommandLine ? "a section of a matrix, which only the command sweep reads"
                                        : "a section of a matrix, not of a deck; accepted is `kozero sweep " + file +
                                              "`, which trains its cases");
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
  if (const DeckRow* list = find_row(given.key().substr(0, given.key().find('['))); list != nullptr) {
    refuse(given.origin, what,
           "no such key; " + list->key + " is given as a whole, accepted: " + accepted_values(*list));
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

/// The value; if it is a text with a unit, the number in the row's unit: "1GiB" is 1024 for zero.offload_mib. For
/// integers the number is rounded down.
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
  if (const auto* table = value.as_table()) {
    return std::any_of(table->begin(), table->end(), [](const auto& each) { return has_nul(each.second); });
  }
  const auto* array = value.as_array();
  return array != nullptr && std::any_of(array->begin(), array->end(), [](const auto& each) { return has_nul(each); });
}

/// The file and line of a node within the given value.
std::string origin_of(const Given& given, const toml::source_region& region) {
  const auto colon = given.origin.rfind(':');
  if (given.origin == kCommandLine || colon == std::string::npos) return given.origin;
  return given.origin.substr(0, colon + 1) + std::to_string(region.begin.line);
}

/// Stores one table of a list, whose key is "data.source[1]".
template <ListTable Keys>
void store_table(const Given& given, const std::string& key, const toml::table& table, Keys& out) {
  const auto& columns = columns_of(out);
  std::vector<std::string> names;
  for (const auto& column : columns) names.push_back(column.name);
  for (const auto& [name, value] : table) {
    const std::string text(name.str());
    const std::string where = origin_of(given, name.source());
    const std::string what = key + "." + text + " = " + shown(value);
    const auto column = std::ranges::find_if(columns, [&](const auto& each) { return each.name == text; });
    if (column == columns.end()) {
      refuse(where, what,
             "no such key; accepted in [[" + key.substr(0, key.find('[')) + "]] are " + joined(names) +
                 did_you_mean(text, names));
    }
    const DeckValue member = column->value_in(out);
    if (std::visit(Store{value}, member) && accepts(column->accepted, member)) continue;
    refuse(where, what, "accepted: " + accepted_values(column->accepted, member));
  }
  for (const auto& column : columns) {
    if (!column.is_needed || table.contains(column.name)) continue;
    refuse(origin_of(given, table.source()), key + "." + column.name,
           "missing; accepted: " + accepted_values(column.accepted, column.value_in(out)));
  }
}

/// Stores a list of tables; false if the value is not one.
template <ListTable Keys>
bool store_tables(const Given& given, std::vector<Keys>& out) {
  const toml::array* array = given.value->as_array();
  if (array == nullptr || !std::ranges::all_of(*array, [](const auto& each) { return each.is_table(); })) return false;
  out.assign(array->size(), Keys());
  for (std::size_t i = 0; i < out.size(); ++i) {
    store_table(given, given.key() + "[" + std::to_string(i) + "]", *array->get(i)->as_table(), out[i]);
  }
  return true;
}

/// Stores the value in the row's member; false if it has another type.
bool store(const Given& given, const toml::node& value, const DeckRow& row, Deck& deck) {
  const DeckValue member = row.value_in(deck);
  return std::visit(
      [&](auto* out) {
        if constexpr (requires { requires ListTable<typename std::remove_pointer_t<decltype(out)>::value_type>; }) {
          return store_tables(given, *out);
        } else {
          return Store{value}(out);
        }
      },
      member);
}

}  // namespace

void apply_given(const Given& given, Deck& deck) {
  if (given.name.empty() && is_section(given.section)) return;
  const DeckRow& row = row_of(given);
  const std::string what = row.key + " = " + shown(*given.value);
  if (has_nul(*given.value)) refuse(given.origin, what, "it holds a NUL character; accepted: text without one");
  const auto value = in_units_of(row, given.value);
  if (!store(given, *value, row, deck) || !accepts(row, row.value_in(deck))) {
    refuse(given.origin, what, "accepted: " + accepted_values(row) + nearest_word(row, *given.value));
  }
  deck.origins[row.key] = given.origin;
}

}  // namespace kozero::io
