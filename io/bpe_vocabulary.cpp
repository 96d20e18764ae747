// SPDX-FileCopyrightText: The KoZeRO authors
// SPDX-License-Identifier: Apache-2.0
#include <set>

#include <nlohmann/json.hpp>

#include <kozero/core/error.hpp>
#include <kozero/io/bpe_vocabulary.hpp>
#include <kozero/io/byte_alphabet.hpp>
#include <kozero/io/json_excerpt.hpp>

namespace kozero::io {

namespace {

constexpr std::int64_t kMaxIds = 1 << 20;

[[noreturn]] void refuse(const std::string& path, const std::string& reason) {
  throw Error(Failure::input, path + ": " + reason);
}

/// An id, or -1 for what is none.
std::int64_t id_from(const nlohmann::json& value) {
  return value.is_number_unsigned() && value.get<std::uint64_t>() < kMaxIds ? value.get<std::int64_t>() : -1;
}

/// The two parts of a merge; empty ones where it has another form.
std::pair<std::string, std::string> parts_of(const nlohmann::json& merge) {
  if (merge.is_array() && merge.size() == 2 && merge[0].is_string() && merge[1].is_string()) {
    return {merge[0].get<std::string>(), merge[1].get<std::string>()};
  }
  if (!merge.is_string()) return {};
  const auto& text = merge.get_ref<const std::string&>();
  const std::size_t blank = text.find(' ');
  if (blank == std::string::npos || text.find(' ', blank + 1) != std::string::npos) return {};
  return {text.substr(0, blank), text.substr(blank + 1)};
}

std::vector<MergeRule> read_merges(const std::string& path, const nlohmann::json& merges, const BpeVocabulary& known) {
  std::vector<MergeRule> rules;
  rules.reserve(merges.size());
  std::set<std::pair<Token, Token>> seen;
  for (const auto& merge : merges) {
    const auto [left, right] = parts_of(merge);
    if (left.empty() || right.empty()) refuse(path, "merge " + json_excerpt(merge) + " is not \"left right\"");
    const auto id_of = [&](const std::string& token) {
      const auto found = known.id_of.find(token);
      if (found == known.id_of.end()) {
        refuse(path, "merge " + json_excerpt(merge) + ": " + json_excerpt(token) + " is not in model.vocab");
      }
      return found->second;
    };
    const MergeRule rule{id_of(left), id_of(right), id_of(left + right)};
    if (!seen.emplace(rule.left, rule.right).second) refuse(path, "merge " + json_excerpt(merge) + " stands twice");
    rules.push_back(rule);
  }
  return rules;
}

}  // namespace

void add_token(const std::string& path, BpeVocabulary& vocabulary, const std::string& visible, std::int64_t id) {
  if (visible.empty()) refuse(path, "id " + std::to_string(id) + " has an empty token");
  if (id < 0 || id >= kMaxIds) {
    refuse(path,
           "token " + json_excerpt(visible) + ": its id is not a number from 0 to " + std::to_string(kMaxIds - 1));
  }
  const auto place = static_cast<std::size_t>(id);
  if (place >= vocabulary.visible.size()) vocabulary.visible.resize(place + 1);
  const auto [entry, is_new] = vocabulary.id_of.emplace(visible, static_cast<Token>(id));
  if (entry->second != id) {
    refuse(path, "token " + json_excerpt(visible) + " has two ids, " + std::to_string(entry->second) + " and " +
                     std::to_string(id));
  }
  if (is_new && !vocabulary.visible[place].empty()) {
    refuse(path, "id " + std::to_string(id) + " is given to " + json_excerpt(vocabulary.visible[place]) + " and " +
                     json_excerpt(visible));
  }
  vocabulary.visible[place] = visible;
}

BpeVocabulary read_bpe_vocabulary(const std::string& path, const nlohmann::json& model) {
  const auto vocab = model.find("vocab"), merges = model.find("merges");
  if (vocab == model.end() || !vocab->is_object()) refuse(path, "no model.vocab");
  if (merges == model.end() || !merges->is_array()) refuse(path, "no model.merges");
  BpeVocabulary vocabulary;
  vocabulary.id_of.reserve(vocab->size());
  for (const auto& [visible, id] : vocab->items()) add_token(path, vocabulary, visible, id_from(id));
  for (std::size_t byte = 0; byte < 256; ++byte) {
    const std::string visible = to_visible(std::string(1, static_cast<char>(byte)));
    const auto found = vocabulary.id_of.find(visible);
    if (found == vocabulary.id_of.end()) {
      refuse(path, "model.vocab has no token " + json_excerpt(visible) + ", byte " + std::to_string(byte) +
                       ": only vocabularies with all 256 bytes are supported");
    }
    vocabulary.bytes[byte] = found->second;
  }
  vocabulary.merges = read_merges(path, *merges, vocabulary);
  return vocabulary;
}

}  // namespace kozero::io
