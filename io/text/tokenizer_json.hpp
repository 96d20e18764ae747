// SPDX-FileCopyrightText: The KoZeRO authors
// SPDX-License-Identifier: Apache-2.0
// tokenizer_json.hpp: a Hugging Face tokenizer.json of byte-level BPE: vocabulary, merges and added tokens, checked.
// Features that would change the ids and are not supported are refused by name. Throws Error(input) naming the file.
#pragma once
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

#include "io/text/bpe_merges.hpp"
#include "io/text/pretokenizer.hpp"

namespace kozero::io {

// The tokens and merges of a Hugging Face tokenizer.json, its "model" part, checked.
//   "vocab": {visible text: id, ...}    "merges": ["left right", ...] or [["left", "right"], ...], by rank
// Every byte must have a token, every merge join two tokens into a third, no merge may stand twice,
// no id be given twice.

struct BpeVocabulary {
  std::unordered_map<std::string, Token> id_of;  ///< by visible text (pretokenizer.hpp)
  std::vector<std::string> visible;              ///< by id; "" for an id that no token has
  ByteIds bytes;
  std::vector<MergeRule> merges;
};

/// Throws Error(input) naming `path` and what is wrong.
BpeVocabulary read_bpe_vocabulary(const std::string& path, const nlohmann::json& model);

/// Adds a token, or finds it there with the same id. Throws Error(input) where text and id contradict what is there.
void add_token(const std::string& path, BpeVocabulary& vocabulary, const std::string& visible, std::int64_t id);

// A Hugging Face tokenizer.json of byte-level BPE, as GPT-2, Llama 3 and Qwen publish theirs.
//   added tokens -> normalizer (none, NFC) -> split pattern -> bytes -> merges
// What would change the ids and is not in that line is refused by name. Post-processors are not applied: they put
// tokens around a whole text, which is the caller's matter; the one they begin with is end_of_text.

struct TokenizerJson {
  std::vector<std::string> bytes_of;  ///< what each id decodes to; "" for an id that no token has
  ByteIds bytes;
  std::vector<MergeRule> merges;
  std::vector<std::pair<std::string, Token>> added;             ///< found in the text as it is given
  std::vector<std::pair<std::string, Token>> added_normalized;  ///< found after the normalizer
  std::string split;                                            ///< the regular expression
  bool nfc = false;
  bool add_prefix_space = false;  ///< a text that does not begin with a blank gets one
  std::vector<Token> whole;  ///< with ignore_merges: pretokens that are one of these are it, whatever the merges make
  Token end_of_text = -1;
  /// ids after which a model of these tokens has nothing more to say, end_of_text among them
  std::vector<Token> closing;
};

/// Throws Error(input) naming `path` and what is wrong or not supported.
TokenizerJson read_tokenizer_json(const std::string& path, std::string_view text);

/// A file with this split; ids: 0..255 bytes, then what the merges make, last <|endoftext|>.
std::string tokenizer_json_of(const std::vector<Merge>& merges, const PublishedSplit& split);

}  // namespace kozero::io
