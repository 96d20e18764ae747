// SPDX-FileCopyrightText: The KoZeRO authors
// SPDX-License-Identifier: Apache-2.0
// bpe_tokenizer.hpp: the byte-level BPE tokenizer, its added tokens, and its training on a corpus.
//    text   -> added tokens | rest -> normalizer -> pretokens (split pattern) -> bytes -> merges -> ids
//    corpus -> form C, if the split requires it -> pretokens -> counts -> merges
// Ids agree with Hugging Face's tokenizers, without the tokens that a post-processor puts around a text. The same
// corpus gives the same trained tokenizer on every machine.
#pragma once
#include <array>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <kozero/core/views.hpp>
#include "io/text/bpe_merges.hpp"
#include "io/text/pretokenizer.hpp"
#include "io/text/tokenizer.hpp"

namespace kozero::io {

/// Tokens that are written out in the text, such as <|endoftext|>, and are found before the text is split.
///   "one<|endoftext|>two"  ->  at 3, the id of <|endoftext|>            the leftmost match; if several, the longest
/// The texts are sorted and the search narrows them byte by byte, so its time at a position is proportional to the
/// number of bytes that match.
class AddedTokens {
 public:
  /// None of the texts may be empty.
  explicit AddedTokens(std::vector<std::pair<std::string, Token>> tokens);

  [[nodiscard]] bool empty() const { return tokens_.empty(); }
  /// The id of the token that is written so; -1 if there is none.
  [[nodiscard]] Token id_of(std::string_view text) const;
  struct Match {
    std::size_t begin, end;
    Token id;  ///< -1, and begin = end = text.size(), if there is no match
  };
  /// The first match that begins at or after `start`.
  [[nodiscard]] Match find(std::string_view text, std::size_t start) const;

 private:
  [[nodiscard]] Match longest_at(std::string_view text, std::size_t begin) const;

  std::vector<std::pair<std::string, Token>> tokens_;  ///< sorted by text
  std::array<bool, 256> begins_{};                     ///< whether a token begins with this byte
  bool same_begin_ = false;                            ///< all tokens begin with the same byte
};

struct TokenizerJson;

/// Byte-level byte-pair encoding, as a tokenizer.json describes it. decode writes special tokens out. Bytes that are
/// not UTF-8, which Hugging Face's tokenizers do not accept, are pretokens of their own.
class BpeTokenizer : public Tokenizer {
 public:
  /// From the bytes of a tokenizer.json. Throws Error(input) naming `path` and the problem.
  BpeTokenizer(const std::string& path, std::string json_text);
  /// From learned merges and the split with which they were learned.
  BpeTokenizer(const std::vector<Merge>& merges, const PublishedSplit& split);

  [[nodiscard]] std::unique_ptr<Encoder> encoder() const override;
  [[nodiscard]] std::string decode(std::span<const Token> tokens) const override;
  [[nodiscard]] int vocab_size() const override { return static_cast<int>(bytes_of_.size()); }
  [[nodiscard]] std::string name() const override { return "bpe:" + std::to_string(vocab_size()); }
  [[nodiscard]] Token end_of_text() const override { return end_of_text_; }
  [[nodiscard]] Token added_token(std::string_view text) const override;
  [[nodiscard]] std::int64_t count_special(std::string_view text) const override;
  [[nodiscard]] bool ends_text(Token token) const override;
  void save(const std::string& path) const override;

 private:
  /// The added tokens that are searched in a text, before and after the normalizer.
  struct AddedSets {
    AddedTokens given, normalized;
  };
  class BpeEncoder;
  BpeTokenizer(std::string json_text, TokenizerJson json);

  std::string json_text_;  ///< saved as it came
  AddedSets added_;        ///< all
  AddedSets ordinary_;     ///< those that are not special
  AddedTokens special_;    ///< the others
  SplitPattern pattern_;
  MergeRules rules_;
  std::vector<std::string> bytes_of_;                  ///< what each id decodes to
  std::unordered_map<std::string_view, Token> whole_;  ///< TokenizerJson::whole
  bool nfc_, add_prefix_space_;
  Token end_of_text_;
  std::vector<Token> closing_;
};

/// A tokenizer of at most `vocab` ids, learned from at most 64 MiB of the corpus: every k-th block of a larger corpus.
/// Memory grows with the number of different pretokens; if there are too many, the rarest are dropped.
std::unique_ptr<BpeTokenizer> train_bpe(const Corpus& corpus, int vocab, const PublishedSplit& split);

}  // namespace kozero::io
