// SPDX-FileCopyrightText: The KoZeRO authors
// SPDX-License-Identifier: Apache-2.0
// deck.cpp: reads a deck from a file and overrides, and writes a deck as text.
// Reading applies the given keys, fills in the defaults that depend on other keys, and checks the whole deck.
// Writing gives the resolved deck.toml and the fingerprint that ranks compare.
#include <filesystem>
#include <fstream>
#include <set>
#include <sstream>

#include <kozero/core/architecture.hpp>
#include <kozero/core/error.hpp>
#include <kozero/core/presets.hpp>
#include "io/deck/check.hpp"
#include "io/deck/deck.hpp"
#include "io/deck/named_deck.hpp"
#include "io/deck/schema.hpp"
#include "io/deck/toml_keys.hpp"
#include "io/run/run_folder.hpp"

namespace kozero::io {
namespace {

/// Adds a note if an earlier override gave the same key another value.
void note_repetition(const Given& given, Deck& deck) {
  const DeckRow* row = find_row(given.key());
  if (row == nullptr || !deck.is_set(row->key) || deck.origins.at(row->key) != given.origin) return;
  if (shown(*given.value) == text_in(deck, *row)) return;
  deck.notes.push_back(given.origin + ": " + row->key + " is given twice; " + shown(*given.value) + " counts, not " +
                       text_in(deck, *row));
}

/// Whether a preset defines the key: the sizes and, for a published model, every key of the network.
bool is_shape_of(const Preset& preset, const std::string& key) {
  static const std::set<std::string> kSizes = {"model.layers",   "model.dim",      "model.heads",
                                               "model.kv_heads", "model.head_dim", "model.ffn"};
  return preset.is_for_any_arch() ? kSizes.count(key) != 0 : is_of_shape(key);
}

/// A preset on the command line replaces the whole shape that the file gives. The file's other keys stay.
void replace_shape(const std::string& preset_of_file, Deck& deck) {
  const Preset* preset = find_preset(deck.model.preset);
  if (preset == nullptr || origin_of(deck, "model.preset") != kCommandLine) return;
  std::vector<std::string> replaced;
  if (preset_of_file != "none" && preset_of_file != deck.model.preset) replaced.push_back("preset");
  for (const auto& row : deck_schema()) {
    if (!deck.is_set(row.key) || origin_of(deck, row.key) == kCommandLine || !is_shape_of(*preset, row.key)) continue;
    const bool same_arch = row.key == "model.arch" && deck.model.arch == preset->family.arch;
    reset(deck, row);
    if (!same_arch) replaced.push_back(name_of(row.key));
  }
  if (!preset->is_for_any_arch() && !deck.is_set("model.arch")) {
    deck.model.arch = preset->family.arch;
    deck.origins["model.arch"] = kCommandLine;
  }
  if (replaced.empty()) return;
  const bool keeps_seq = deck.is_set("model.seq") && origin_of(deck, "model.seq") != kCommandLine;
  deck.notes.push_back(std::string(kCommandLine) + ": model.preset = \"" + preset->name + "\" replaces the deck's " +
                       joined(replaced) +
                       (keeps_seq ? "; model.seq = " + std::to_string(deck.model.seq) + " stays" : ""));
}

/// Sets the keys that the user did not give and that follow from another key.
void complete(Deck& deck) {
  if (!deck.is_set("run.dir")) deck.run.dir = "runs/" + std::filesystem::path(deck.source).stem().string();
  const Preset* preset = find_preset(deck.model.preset);
  if (!deck.is_set("model.arch") && preset != nullptr && !preset->is_for_any_arch()) {
    deck.model.arch = preset->family.arch;
  }
  const Architecture& arch = architecture(deck.model.arch);
  if (!deck.is_set("model.tie_embeddings")) deck.model.tie_embeddings = arch.tie_embeddings;
  if (!deck.is_set("model.qkv_bias")) deck.model.qkv_bias = arch.qkv_bias == Architecture::Part::always;
  if (!deck.is_set("model.qk_norm")) deck.model.qk_norm = arch.qk_norm == Architecture::Part::always;
}

/// A step whose last micro-batch is short takes as long as one whose last is full.
void note_short_batch(Deck& deck) {
  const std::int64_t rest = deck.train.global_batch % deck.train.micro_batch;
  if (rest == 0 || deck.train.global_batch < deck.train.micro_batch || deck.train.batch_scaling != "none") return;
  deck.notes.push_back("train.global_batch = " + std::to_string(deck.train.global_batch) +
                       " is no multiple of train.micro_batch = " + std::to_string(deck.train.micro_batch) +
                       ": the last micro-batch of each step has " + std::to_string(rest) +
                       (rest == 1 ? " sequence" : " sequences"));
}

constexpr const char* kResolvedHeading = "# The resolved deck of a run";

/// If a relative path exists only relative to the folder above the deck's, not in the current directory, changes it to
/// that path.
void find_path(const std::string& source, std::string& path) {
  namespace fs = std::filesystem;
  const auto above = (fs::path(source).parent_path() / ".." / path).lexically_normal();
  std::error_code ignored;
  if (!fs::path(path).is_absolute() && !fs::exists(path, ignored) && fs::exists(above, ignored)) path = above.string();
}

bool is_truth_value(const DeckRow& row) {
  Deck deck;
  return std::holds_alternative<bool*>(row.value_in(deck));
}

/// Whether a resolved deck omits the key: it was not given, and its default means "not given" or the preset decides.
/// true or false is always written unless the preset decides.
bool is_left_out(const Deck& deck, const DeckRow& row) {
  if (deck.is_set(row.key)) return false;
  const bool preset_decides = section_of(row.key) == "model" && deck.model.preset != "none";
  return (preset_decides && row.key != "model.arch") ||
         (!row.default_text.empty() && !is_truth_value(row) && holds_default(deck, row));
}

/// Replaces characters that TOML does not allow in a comment, such as line breaks, which a file's name may have.
std::string comment(std::string text) {
  for (char& letter : text) {
    if (letter < ' ' || letter > '~') letter = '?';
  }
  return text;
}

std::string line_of(const Deck& deck, const DeckRow& row) {
  if (is_left_out(deck, row)) {
    return "# " + name_of(row.key) + ": " + (row.default_text.empty() ? "the preset's" : row.default_text);
  }
  const auto origin = deck.origins.find(row.key);
  const std::string from = origin == deck.origins.end() ? "default" : origin->second;
  return name_of(row.key) + " = " + text_in(deck, row) + "  # " + comment(from);
}

}  // namespace

Deck parse_deck(const std::string& text, const std::string& source, const std::vector<std::string>& overrides) {
  Deck deck;
  deck.source = source;
  for (const auto& given : given_in_text(text, source)) apply_given(given, deck);
  const std::string preset_of_file = deck.model.preset;
  for (const auto& each : overrides) {
    const Given given = given_in_override(each);
    note_repetition(given, deck);
    apply_given(given, deck);
  }
  replace_shape(preset_of_file, deck);
  complete(deck);
  check_deck(deck);
  note_short_batch(deck);
  for (auto& path : deck.data.text) find_path(source, path);
  for (auto& each : deck.data.source) {
    for (auto& path : each.text) find_path(source, path);
  }
  for (auto& path : deck.data.tokens) find_path(source, path);
  if (deck.run.tuning != "none") find_path(source, deck.run.tuning);
  if (deck.data.has_tokenizer_file()) find_path(source, deck.data.tokenizer);
  return deck;
}

Deck read_deck(const std::string& path, const std::vector<std::string>& overrides) {
  return parse_deck(text_of_deck(path), path, overrides);
}

std::string resolved_text(const Deck& deck) {
  std::string text = std::string(kResolvedHeading) + ": every value, and behind it where it came from.\n";
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

}  // namespace kozero::io
