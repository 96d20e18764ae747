// SPDX-FileCopyrightText: The KoZeRO authors
// SPDX-License-Identifier: Apache-2.0
// bpe_tokenizer.hpp: byte-level byte-pair encoding, as a tokenizer.json describes it.
//   text -> added tokens | rest -> normaliser -> pieces (split pattern) -> bytes -> merges -> ids
// Encodes as Hugging Face's tokenizers without the tokens that a post-processor would put around the text; decodes to
// the bytes, special tokens written out. Bytes that are not UTF-8, which Hugging Face's do not take, are pieces of
// their own.
#pragma once
#include <kozero/io/added_tokens.hpp>
#include <kozero/io/merge_learner.hpp>
#include <kozero/io/merge_rules.hpp>
#include <kozero/io/piece_cache.hpp>
#include <kozero/io/split_pattern.hpp>
#include <kozero/io/tokenizer.hpp>

namespace kozero::io {

struct TokenizerJson;

class BpeTokenizer : public Tokenizer {
 public:
  /// From the bytes of a tokenizer.json. Throws Error(input) naming `path` and what is wrong.
  BpeTokenizer(const std::string& path, std::string json_text);
  /// From learnt merges, with GPT-2's split pattern.
  explicit BpeTokenizer(const std::vector<Merge>& merges);

  [[nodiscard]] std::vector<Token> encode(std::string_view text) const override;
  [[nodiscard]] std::vector<Token> encode_rest(std::string_view text) const override;
  [[nodiscard]] std::string decode(std::span<const Token> tokens) const override;
  [[nodiscard]] int vocab_size() const override { return static_cast<int>(bytes_of_.size()); }
  [[nodiscard]] std::string name() const override { return "bpe:" + std::to_string(vocab_size()); }
  [[nodiscard]] Token end_of_text() const override { return end_of_text_; }
  [[nodiscard]] bool ends_text(Token token) const override;
  void save(const std::string& path) const override;

 private:
  BpeTokenizer(std::string json_text, TokenizerJson json);

  [[nodiscard]] std::vector<Token> encode_text(std::string_view text, bool add_prefix_space) const;
  void encode_unnormalized(std::string_view text, bool add_prefix_space, std::vector<Token>& tokens) const;
  void encode_plain(std::string_view text, bool add_prefix_space, std::vector<Token>& tokens) const;
  void encode_pieces(std::string_view text, std::vector<Token>& tokens) const;

  std::string json_text_;  ///< saved as it came
  AddedTokens added_, added_normalized_;
  SplitPattern pattern_;
  MergeRules rules_;
  std::vector<std::string> bytes_of_;                     ///< what each id decodes to
  std::unordered_map<std::string_view, Token> whole_;  ///< pieces that are tokens whatever the merges make of them
  bool nfc_, add_prefix_space_;
  Token end_of_text_;
  std::vector<Token> closing_;
  mutable PieceCache cache_;
};

}  // namespace kozero::io
