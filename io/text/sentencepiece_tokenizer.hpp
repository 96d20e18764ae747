// SPDX-FileCopyrightText: The KoZeRO authors
// SPDX-License-Identifier: Apache-2.0
// sentencepiece_tokenizer.hpp: a SentencePiece model, unigram or BPE, through its library.
// Ids and text are the library's: the model's normalizer applies, control symbols have no text, and bytes that are not
// UTF-8 become U+FFFD. Documents begin with the model's <s> or, if it has none, with its </s>. If words can be encoded
// one by one (check_sentencepiece), a cache keeps the ids of words that the library has encoded: the same ids, several
// times as fast. Kudo, Richardson 2018, arXiv:1808.06226.
#pragma once
#include <memory>
#include <string>
#include <string_view>

#include "io/text/tokenizer.hpp"

namespace sentencepiece {
class SentencePieceProcessor;
}

namespace kozero::io {

/// Whether a file is a SentencePiece model rather than JSON.
bool looks_like_sentencepiece(std::string_view bytes);

/// Checks a model's bytes before the library reads them, since the library follows the character map's trie without
/// bounds checks. Returns whether words can be encoded one by one, each with the blanks before it, with the ids of the
/// whole text: the model is BPE, keeps characters and blanks, and no piece has a blank after a word.
/// Throws Error(input) naming `path` and the problem.
bool check_sentencepiece(const std::string& path, std::string_view bytes);

class SentencePieceTokenizer : public Tokenizer {
 public:
  /// From the bytes of a .model file. Throws Error(input) naming `path` and the problem.
  SentencePieceTokenizer(const std::string& path, std::string model);
  ~SentencePieceTokenizer() override;

  [[nodiscard]] std::unique_ptr<Encoder> encoder() const override;
  [[nodiscard]] std::string decode(std::span<const Token> tokens) const override;
  [[nodiscard]] int vocab_size() const override;
  [[nodiscard]] std::string name() const override { return "sentencepiece:" + std::to_string(vocab_size()); }
  [[nodiscard]] Token end_of_text() const override;
  [[nodiscard]] bool decodes_by_token() const override { return false; }
  [[nodiscard]] bool ends_text(Token token) const override;
  [[nodiscard]] std::string file_name() const override { return "tokenizer.model"; }
  void save(const std::string& path) const override;

 private:
  class WordEncoder;

  std::string model_;  ///< as it was read; save writes it
  std::unique_ptr<sentencepiece::SentencePieceProcessor> processor_;
  Token blank_;             ///< the id of a single blank, or -1
  bool blank_before_text_;  ///< a text gets a blank before it
  bool word_by_word_;
};

}  // namespace kozero::io
