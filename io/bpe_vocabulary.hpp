// SPDX-FileCopyrightText: The KoZeRO authors
// SPDX-License-Identifier: Apache-2.0
// bpe_vocabulary.hpp: the tokens and merges of a Hugging Face tokenizer.json, its "model" part, checked.
//   "vocab": {visible text: id, ...}    "merges": ["left right", ...] or [["left", "right"], ...], by rank
// Every byte must have a token, every merge join two tokens into a third, no merge may stand twice,
// no id be given twice.
#pragma once
#include <string>
#include <unordered_map>
#include <vector>

#include <nlohmann/json_fwd.hpp>

#include <kozero/io/merge_rules.hpp>

namespace kozero::io {

struct BpeVocabulary {
  std::unordered_map<std::string, Token> id_of;  ///< by visible text (byte_alphabet.hpp)
  std::vector<std::string> visible;              ///< by id; "" for an id that no token has
  ByteIds bytes;
  std::vector<MergeRule> merges;
};

/// Throws Error(input) naming `path` and what is wrong.
BpeVocabulary read_bpe_vocabulary(const std::string& path, const nlohmann::json& model);

/// Adds a token, or finds it there with the same id. Throws Error(input) where text and id contradict what is there.
void add_token(const std::string& path, BpeVocabulary& vocabulary, const std::string& visible, std::int64_t id);

}  // namespace kozero::io
