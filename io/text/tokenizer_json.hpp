// SPDX-FileCopyrightText: The KoZeRO authors
// SPDX-License-Identifier: Apache-2.0
// tokenizer_json.hpp: a Hugging Face tokenizer.json of byte-level BPE: vocabulary, merges and added tokens, checked.
//   added tokens -> normalizer (none, NFC) -> split pattern -> bytes -> merges
// Other features that would change the ids are refused by name. Throws Error(input) naming the file.
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

/// The tokens and merges of a tokenizer.json, from its "model" part.
///   "vocab": {visible text: id, ...}    "merges": ["left right", ...] or [["left", "right"], ...], by rank
/// Every byte must have a token, and every merge must join two tokens into a third. No merge and no id may occur twice.
struct BpeVocabulary {
  std::unordered_map<std::string, Token> id_of;  ///< by visible text (pretokenizer.hpp)
  std::vector<std::string> visible;              ///< by id; "" for an id that no token has
  ByteIds bytes;
  std::vector<MergeRule> merges;
};

/// Throws Error(input) naming `path` and the problem.
BpeVocabulary read_bpe_vocabulary(const std::string& path, const nlohmann::json& model);

/// Adds a token, unless it is there with the same id. Throws Error(input) if the text has another id, or the id another
/// text.
void add_token(const std::string& path, BpeVocabulary& vocabulary, const std::string& visible, std::int64_t id);

/// A tokenizer.json as GPT-2, Llama 3 and Qwen publish it. Post-processors, which put tokens around a whole text, are
/// not applied; the token that they put first is end_of_text.
struct TokenizerJson {
  std::vector<std::string> bytes_of;  ///< the text of each id; "" for an id that no token has
  ByteIds bytes;
  std::vector<MergeRule> merges;
  std::vector<std::pair<std::string, Token>> added;             ///< found in the text as it is given
  std::vector<std::pair<std::string, Token>> added_normalized;  ///< found after the normalizer
  std::vector<Token> special;                                   ///< added tokens that control the model, not text
  std::string split;                                            ///< the regular expression
  bool nfc = false;
  bool add_prefix_space = false;  ///< a text that does not begin with a blank gets one
  std::vector<Token> whole;  ///< with ignore_merges: a pretoken equal to one of these is this token, without merges
  Token end_of_text = -1;
  /// ids that end generated text, end_of_text among them
  std::vector<Token> closing;
};

/// The JSON of a file that is not trusted. Throws Error(input) naming `path`.
nlohmann::json parse_tokenizer_json(const std::string& path, std::string_view text);

/// Throws Error(input) naming `path` and what is malformed or not supported.
TokenizerJson read_tokenizer_json(const std::string& path, std::string_view text);

/// The text of a tokenizer.json with this split. Ids: 0..255 bytes, then the token of each merge, last <|endoftext|>.
std::string tokenizer_json_of(const std::vector<Merge>& merges, const PublishedSplit& split);

}  // namespace kozero::io
