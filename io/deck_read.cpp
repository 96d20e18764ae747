// SPDX-FileCopyrightText: The KoZeRO authors
// SPDX-License-Identifier: Apache-2.0
// deck_read.cpp: a file and overrides into a Deck; then what silence means; then the whole-deck checks.
#include <filesystem>

#include <kozero/io/deck_apply.hpp>
#include <kozero/io/deck_check.hpp>
#include <kozero/io/deck_refusal.hpp>
#include <kozero/io/deck_schema.hpp>
#include <kozero/io/whole_file.hpp>

namespace kozero::io {
namespace {

constexpr std::int64_t kMaxDeckBytes = std::int64_t{16} << 20;

std::string text_of_file(const std::string& path) {
  std::error_code ignored;
  if (std::filesystem::is_directory(path, ignored)) {
    const std::string inside = (std::filesystem::path(path) / "deck.toml").string();
    refuse(path, "",
           "a folder, not a deck; accepted is a TOML file" +
               (std::filesystem::exists(inside, ignored) ? "; did you mean " + inside + "?" : ""));
  }
  try {
    return read_whole_file(path, kMaxDeckBytes);
  } catch (const Error& problem) {
    const std::string text = problem.what();
    refuse(path, "", "no readable file: " + text.substr(text.starts_with(path + ": ") ? path.size() + 2 : 0));
  }
}

/// Of two overrides of one key the second counts.
void note_repetition(const Given& given, Deck& deck) {
  const DeckRow* row = find_row(given.key());
  if (row == nullptr || !deck.is_set(row->key) || deck.origins.at(row->key) != given.origin) return;
  if (shown(*given.value) == text_in(deck, *row)) return;
  deck.notes.push_back(given.origin + ": " + row->key + " is given twice; " + shown(*given.value) + " counts, not " +
                       text_in(deck, *row));
}

/// What the user did not say and another key decides.
void complete(Deck& deck) {
  const std::string& preset = deck.model.preset;
  if (!deck.is_set("run.dir")) deck.run.dir = "runs/" + std::filesystem::path(deck.source).stem().string();
  if (!deck.is_set("model.arch") && !arch_of_preset(preset).empty()) deck.model.arch = arch_of_preset(preset);
  if (!deck.is_set("model.tie_embeddings")) deck.model.tie_embeddings = deck.model.arch == "gpt2";
  if (!deck.is_set("model.qkv_bias")) deck.model.qkv_bias = deck.model.arch == "qwen2";
  if (!deck.is_set("model.qk_norm")) deck.model.qk_norm = deck.model.arch == "qwen3";
}

bool names_tokenizer_kind(const Deck& deck) { return deck.data.tokenizer == "bytes" || deck.data.tokenizer == "bpe"; }

/// Points a relative path to the folder above the deck's, where it is there and not in the current directory.
void find_path(const std::string& source, std::string& path) {
  namespace fs = std::filesystem;
  const auto above = (fs::path(source).parent_path() / ".." / path).lexically_normal();
  std::error_code ignored;
  if (!fs::path(path).is_absolute() && !fs::exists(path, ignored) && fs::exists(above, ignored)) path = above.string();
}

}  // namespace

Deck parse_deck(const std::string& text, const std::string& source, const std::vector<std::string>& overrides) {
  Deck deck;
  deck.source = source;
  for (const auto& given : given_in_text(text, source)) apply_given(given, deck);
  for (const auto& each : overrides) {
    const Given given = given_in_override(each);
    note_repetition(given, deck);
    apply_given(given, deck);
  }
  complete(deck);
  check_deck(deck);
  for (auto& path : deck.data.text) find_path(source, path);
  for (auto& path : deck.data.tokens) find_path(source, path);
  if (deck.run.tuning != "none") find_path(source, deck.run.tuning);
  if (!names_tokenizer_kind(deck)) find_path(source, deck.data.tokenizer);
  return deck;
}

Deck read_deck(const std::string& path, const std::vector<std::string>& overrides) {
  return parse_deck(text_of_file(path), path, overrides);
}

}  // namespace kozero::io
