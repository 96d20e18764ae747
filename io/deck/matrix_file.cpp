// SPDX-FileCopyrightText: The KoZeRO authors
// SPDX-License-Identifier: Apache-2.0
// matrix_file.cpp: reads the three sections of a matrix, and checks each key and value as a deck's.
#include <algorithm>
#include <filesystem>
#include <map>
#include <memory>
#include <optional>

#include "io/deck/check.hpp"
#include "io/deck/matrix_file.hpp"
#include "io/deck/schema.hpp"
#include "io/deck/toml_keys.hpp"
#include "io/posix/file.hpp"
#include "io/run/run_folder.hpp"

namespace kozero::io {
namespace {

namespace fs = std::filesystem;
using Node = std::shared_ptr<toml::node>;

constexpr const char* kRanks = "ranks";  // of axes: run.ranks
constexpr std::int64_t kMostRepetitions = 1000;

const std::vector<std::string>& sections() {
  static const std::vector<std::string> kSections = {"sweep", "set", "axes"};
  return kSections;
}

/// A key of a section, with the sections inside it joined: "zero.stage".
struct Leaf {
  std::string key;
  Node value;
  std::string origin;  ///< "sweep.toml:12"
  toml::source_position at;
};

nlohmann::ordered_json json_of(const toml::node& node) {
  if (const auto* number = node.as_integer()) return number->get();
  if (const auto* number = node.as_floating_point()) return number->get();
  if (const auto* truth = node.as_boolean()) return truth->get();
  if (const auto* text = node.as_string()) return text->get();
  const toml::array* array = node.as_array();
  if (array == nullptr) return shown(node);
  nlohmann::ordered_json list = nlohmann::ordered_json::array();
  for (const auto& each : *array) list.push_back(json_of(each));
  return list;
}

/// The keys below `value`, in the order of the file. A table that is the value of a deck's key is not opened.
void add_leaves(const std::string& key, const Node& value, const std::string& file, std::vector<Leaf>& leaves) {
  toml::table* table = find_row(key) == nullptr ? value->as_table() : nullptr;
  if (table != nullptr) {
    for (auto&& [name, below] : *table) {
      add_leaves((key.empty() ? "" : key + ".") + std::string(name.str()), Node(value, &below), file, leaves);
    }
    return;
  }
  const toml::source_position at = value->source().begin;
  leaves.push_back({key, value, file == kCommandLine ? file : file + ":" + std::to_string(at.line), at});
}

std::vector<Leaf> leaves_of(const std::string& key, const Node& value, const std::string& file) {
  std::vector<Leaf> leaves;
  add_leaves(key, value, file, leaves);
  std::ranges::stable_sort(leaves, [](const Leaf& a, const Leaf& b) { return a.at < b.at; });
  return leaves;
}

/// The name of a deck's key: "run.ranks" for "ranks".
std::string key_of(const std::string& name) { return name == kRanks ? "run.ranks" : name; }

/// Reads a matrix's parts one after the other.
class Reader {
 public:
  explicit Reader(const std::string& path) {
    matrix_.path = path;
    const std::string stem = fs::path(path).stem().string();
    matrix_.name = stem;
    matrix_.dir = "runs/" + stem;
  }

  void read_file();
  void read_override(const std::string& text);
  Matrix finish();

 private:
  void read_setting(const std::string& name, const toml::node& value, const std::string& origin);
  void read_axis(const Leaf& leaf);
  AxisValue value_of(const Leaf& leaf, toml::node& element);
  AxisValue table_of(const Leaf& leaf, toml::node& element);
  /// Puts a key of a deck into `keys`, if the deck's schema accepts it.
  void add_key(const Leaf& leaf, DeckKeys& keys);
  /// Throws Error(deck) if another place than `place` gives the key.
  void claim(const std::string& key, const std::string& what, const std::string& origin, const std::string& place);

  Matrix matrix_;
  std::map<std::string, std::pair<std::string, std::string>> claimed_;  // key -> place ("[set]") and origin
  std::string deck_origin_;
};

void Reader::claim(const std::string& key, const std::string& what, const std::string& origin,
                   const std::string& place) {
  const auto [known, is_first] = claimed_.emplace(key, std::pair(place, origin));
  const auto& [other, where] = known->second;
  if (is_first || other == place) return;
  refuse(origin, what, "contradicts " + other + ", which gives " + key + " too (" + where + "); accepted in one place");
}

void Reader::add_key(const Leaf& leaf, DeckKeys& keys) {
  const std::string key = key_of(leaf.key);
  const auto point = key.find('.');
  const std::string section = point == std::string::npos ? "" : key.substr(0, point);
  const Given given{section, key.substr(point == std::string::npos ? 0 : point + 1), leaf.value, leaf.origin};
  Deck scratch;
  apply_given(given, scratch);
  const std::string what = leaf.key + " = " + shown(*leaf.value);
  if (key == "run.dir") refuse(leaf.origin, what, "each case has a folder of its own; accepted is dir in [sweep]");
  if (key == "checkpoint.resume") refuse(leaf.origin, what, "each case begins anew; accepted is no such key");
  const auto known = std::ranges::find(keys, key, &DeckKeys::value_type::first);
  if (known == keys.end()) {
    keys.emplace_back(key, shown(*leaf.value));
  } else {
    known->second = shown(*leaf.value);
  }
}

void Reader::read_setting(const std::string& name, const toml::node& value, const std::string& origin) {
  const std::string what = "sweep." + name + " = " + shown(value);
  const auto text = [&](std::string& out) {
    const auto given = value.value<std::string>();
    if (!value.is_string() || given->empty()) refuse(origin, what, "accepted: a text");
    out = *given;
  };
  const auto set = [&](const char* key, const char* accepted, bool fits) {
    if (!fits) refuse(origin, what, std::string("accepted: ") + accepted);
    claim(key, what, origin, "sweep." + name);
    std::erase_if(matrix_.set, [&](const auto& each) { return each.first == key; });
    matrix_.set.emplace_back(key, shown(value));
  };
  const std::int64_t integer = value.is_number() ? value.value<std::int64_t>().value_or(0) : 0;
  const double number = value.is_number() ? value.value<double>().value_or(0.0) : 0.0;
  if (name == "deck") {
    text(matrix_.deck);
    deck_origin_ = origin;
  } else if (name == "dir") {
    text(matrix_.dir);
  } else if (name == "name") {
    text(matrix_.name);
  } else if (name == "steps") {
    set("run.steps", "integer >= 1", integer >= 1);
  } else if (name == "minutes") {
    set("run.max_minutes", "number > 0", number > 0.0);
  } else if (name == "repetitions") {
    if (integer < 1 || integer > kMostRepetitions) refuse(origin, what, "accepted: integer in 1 to 1000");
    matrix_.repetitions = integer;
  } else if (name == "timeout_s") {
    if (!(number > 0.0)) refuse(origin, what, "accepted: number > 0, in seconds");
    matrix_.timeout_s = number;
  } else {
    const std::vector<std::string> names = {"deck", "dir", "name", "steps", "minutes", "repetitions", "timeout_s"};
    refuse(origin, what, "no such key; accepted in [sweep] are " + joined(names) + did_you_mean(name, names));
  }
}

AxisValue Reader::value_of(const Leaf& leaf, toml::node& element) {
  AxisValue value;
  const auto text = element.value<std::string>();
  value.name = element.is_string() ? *text : shown(element);
  value.value = json_of(element);
  add_key({leaf.key, Node(leaf.value, &element), leaf.origin, leaf.at}, value.keys);
  return value;
}

AxisValue Reader::table_of(const Leaf& leaf, toml::node& element) {
  AxisValue value;
  std::string keys_in_words;
  for (const Leaf& inner : leaves_of("", Node(leaf.value, &element), matrix_.path)) {
    if (inner.key == "name") {
      if (!inner.value->is_string()) {
        refuse(inner.origin, leaf.key + ".name = " + shown(*inner.value), "accepted: a text");
      }
      value.name = *inner.value->value<std::string>();
      continue;
    }
    add_key(inner, value.keys);
    value.parts[key_of(inner.key) == "run.ranks" ? kRanks : inner.key] = json_of(*inner.value);
    keys_in_words += (keys_in_words.empty() ? "" : ",") + inner.key + "=" + value.keys.back().second;
  }
  if (value.name.empty()) value.name = keys_in_words;
  value.value = value.name;
  return value;
}

void Reader::read_axis(const Leaf& leaf) {
  const std::string what = leaf.key + " = " + shown(*leaf.value);
  toml::array* array = leaf.value->as_array();
  if (array == nullptr) {
    refuse(leaf.origin, what, "accepted in [axes]: a list of values; a value for all cases belongs in [set]");
  }
  if (array->empty()) refuse(leaf.origin, what, "an empty axis; accepted: a list of one value or more");
  Axis axis{key_of(leaf.key) == "run.ranks" ? kRanks : leaf.key, {}};
  if (std::ranges::find(matrix_.axes, axis.key, &Axis::key) != matrix_.axes.end()) {
    refuse(leaf.origin, what, "contradicts the axis " + axis.key + "; accepted is one of them");
  }
  const bool of_tables = find_row(leaf.key) == nullptr && array->is_homogeneous(toml::node_type::table);
  for (auto& element : *array) {
    AxisValue value = of_tables ? table_of(leaf, element) : value_of(leaf, element);
    const auto same_name = [&](const AxisValue& other) { return other.name == value.name; };
    if (of_tables && std::ranges::any_of(axis.values, same_name)) {
      refuse(leaf.origin, leaf.key + ".name = " + toml_string(value.name), "two values have it; give each its own");
    }
    for (const auto& [key, text] : value.keys) claim(key, leaf.key, leaf.origin, "the axis " + axis.key);
    axis.values.push_back(std::move(value));
  }
  matrix_.axes.push_back(std::move(axis));
}

void Reader::read_file() {
  const std::string& path = matrix_.path;
  std::string text;
  try {
    text = read_whole_file(path, kMaxDeckBytes);
  } catch (const Error& problem) {
    const std::string why = problem.what();
    refuse(path, "", "no readable file: " + why.substr(why.starts_with(path + ": ") ? path.size() + 2 : 0));
  }
  std::vector<Leaf> axes;
  for (const Given& given : given_in_text(text, path)) {
    if (std::ranges::find(sections(), given.section) == sections().end()) {
      const auto of_decks = deck_sections();
      const bool is_deck = std::ranges::find(of_decks, given.section) != of_decks.end();
      refuse(given.origin, given.section.empty() ? given.name : "[" + given.section + "]",
             std::string(is_deck ? "a deck's section; a matrix names its deck in [sweep] and has its keys below [set] "
                                   "and [axes]"
                                 : "no such section; accepted are sweep, set, axes") +
                 (is_deck ? "" : did_you_mean(given.section, sections())));
    }
    if (given.name.empty()) continue;
    if (given.section == "sweep") {
      read_setting(given.name, *given.value, given.origin);
      continue;
    }
    for (const Leaf& leaf : leaves_of(given.name, given.value, path)) {
      if (given.section == "axes") {
        axes.push_back(leaf);
      } else {
        claim(key_of(leaf.key), leaf.key + " = " + shown(*leaf.value), leaf.origin, "[set]");
        add_key(leaf, matrix_.set);
      }
    }
  }
  std::ranges::stable_sort(axes, [](const Leaf& a, const Leaf& b) { return a.at < b.at; });
  for (const Leaf& leaf : axes) read_axis(leaf);
}

void Reader::read_override(const std::string& text) {
  const Given given = given_in_override(text);
  if (given.section == "sweep") return read_setting(given.name, *given.value, kCommandLine);
  const Leaf leaf{given.key(), given.value, kCommandLine, {}};
  const std::string key = key_of(leaf.key);
  add_key(leaf, matrix_.set);
  const auto known = claimed_.find(key);
  if (known != claimed_.end() && known->second.first.starts_with("the axis ")) {
    refuse(kCommandLine, text, "contradicts " + known->second.first + " (" + known->second.second + ")");
  }
}

Matrix Reader::finish() {
  if (claimed_.contains("run.steps") && claimed_.contains("run.max_minutes") &&
      claimed_["run.steps"].first == "sweep.steps" && claimed_["run.max_minutes"].first == "sweep.minutes") {
    refuse(claimed_["run.max_minutes"].second, "sweep.minutes",
           "contradicts sweep.steps (" + claimed_["run.steps"].second + "); accepted is one of them");
  }
  if (matrix_.deck.empty()) refuse(matrix_.path, "sweep.deck", "missing; accepted: path of a deck");
  if (deck_origin_ != kCommandLine) {
    matrix_.deck = (fs::path(matrix_.path).parent_path() / matrix_.deck).lexically_normal().string();
  }
  std::error_code ignored;
  if (!fs::is_regular_file(matrix_.deck, ignored)) {
    refuse(deck_origin_, "sweep.deck = " + toml_string(matrix_.deck),
           "no such file; accepted: path of a deck, relative to the matrix");
  }
  matrix_.deck_text = read_whole_file(matrix_.deck, kMaxDeckBytes);
  matrix_.dir = without_trailing_slash(matrix_.dir);
  return matrix_;
}

}  // namespace

Matrix read_matrix(const std::string& path, const std::vector<std::string>& overrides) {
  Reader reader(path);
  reader.read_file();
  for (const auto& text : overrides) reader.read_override(text);
  return reader.finish();
}

}  // namespace kozero::io
