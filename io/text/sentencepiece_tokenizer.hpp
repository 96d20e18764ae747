// SPDX-FileCopyrightText: The KoZeRO authors
// SPDX-License-Identifier: Apache-2.0
// sentencepiece_tokenizer.hpp: a SentencePiece model, unigram or BPE, through its library.
// Ids and text are the library's: the model's normalizer applies, control symbols have no text, and bytes that are not
// UTF-8 become U+FFFD. Documents begin with the model's <s>, else with its </s>. Where words are apart
// (check_sentencepiece), the library sees each word once and a cache knows it after that: the same ids, several times
// as fast. Kudo, Richardson 2018, arXiv:1808.06226.
#pragma once
#include <memory>
#include <string>
#include <string_view>

#include "io/text/tokenizer.hpp"

namespace sentencepiece {
class SentencePieceProcessor;
}

namespace kozero::io {

// A SentencePiece model's bytes, checked before the library reads them.
//   ModelProto (protobuf): 1 pieces {1 text, 2 score, 3 type}  2 trainer {3 kind, 24 blanks behind words}
//   3 normalizer {2 character map, 4 fewer blanks, 5 blanks become U+2581}  5 denormalizer
// The library follows the character map's double-array trie without bounds; here every transition is shown to stay
// inside and every value to point at a text that ends. Kudo, Richardson 2018, arXiv:1808.06226,
// sentencepiece_model.proto; darts-clone for the layout of the trie's units.

/// Whether a file is such a model rather than JSON.
bool looks_like_sentencepiece(std::string_view bytes);

/// Whether words can be encoded one by one, each with the blanks before it, and give the ids of the whole text: the
/// model merges by rank (BPE), leaves characters and blanks as they are, and no piece goes on from a word into a blank.
/// Throws Error(input) naming `path` and what is wrong.
bool check_sentencepiece(const std::string& path, std::string_view bytes);

class SentencePieceTokenizer : public Tokenizer {
 public:
  /// From the bytes of a .model file. Throws Error(input) naming `path` and what is wrong.
  SentencePieceTokenizer(const std::string& path, std::string model);
  ~SentencePieceTokenizer() override;

  [[nodiscard]] std::vector<Token> encode(std::string_view text) const override;
  [[nodiscard]] std::vector<Token> encode_rest(std::string_view text) const override;
  [[nodiscard]] std::string decode(std::span<const Token> tokens) const override;
  [[nodiscard]] int vocab_size() const override;
  [[nodiscard]] std::string name() const override { return "sentencepiece:" + std::to_string(vocab_size()); }
  [[nodiscard]] Token end_of_text() const override;
  [[nodiscard]] bool ends_text(Token token) const override;
  [[nodiscard]] std::string file_name() const override { return "tokenizer.model"; }
  void save(const std::string& path) const override;

 private:
  void encode_word(std::string_view word, std::vector<Token>& tokens) const;

  std::string model_;  ///< saved as it came
  std::unique_ptr<sentencepiece::SentencePieceProcessor> processor_;
  Token blank_;             ///< of a blank alone, or -1
  bool blank_before_text_;  ///< a text gets a blank before it
  bool word_by_word_;
  mutable PretokenCache cache_;
};

}  // namespace kozero::io
