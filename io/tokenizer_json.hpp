// SPDX-FileCopyrightText: The KoZeRO authors
// SPDX-License-Identifier: Apache-2.0
// tokenizer_json.hpp: a Hugging Face tokenizer.json of byte-level BPE, as GPT-2, Llama 3 and Qwen publish theirs.
//   added tokens -> normaliser (none, NFC) -> split pattern -> bytes -> merges
// What would change the ids and is not in that line is refused by name. Post-processors are not applied: they put
// tokens around a whole text, which is the caller's matter; the one they begin with is end_of_text.
#pragma once
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <kozero/io/merge_learner.hpp>
#include <kozero/io/merge_rules.hpp>

namespace kozero::io {

struct TokenizerJson {
  std::vector<std::string> bytes_of;  ///< what each id decodes to; "" for an id that no token has
  ByteIds bytes;
  std::vector<MergeRule> merges;
  std::vector<std::pair<std::string, Token>> added;             ///< found in the text as it is given
  std::vector<std::pair<std::string, Token>> added_normalized;  ///< found after the normaliser
  std::string split;  ///< the regular expression
  bool nfc = false;
  bool add_prefix_space = false;  ///< a text that does not begin with a blank gets one
  std::vector<Token> whole;       ///< with ignore_merges: pieces that are one of these are it, whatever the merges make
  Token end_of_text = -1;
  std::vector<Token> closing;  ///< ids after which a model of these tokens has nothing more to say, end_of_text among them
};

/// Throws Error(input) naming `path` and what is wrong or not supported.
TokenizerJson read_tokenizer_json(const std::string& path, std::string_view text);

/// A file with GPT-2's split pattern; ids: 0..255 bytes, then what the merges make, last <|endoftext|>.
std::string tokenizer_json_of(const std::vector<Merge>& merges);

}  // namespace kozero::io
