// SPDX-FileCopyrightText: The KoZeRO authors
// SPDX-License-Identifier: Apache-2.0
// character_tokenizer.hpp: one id for each character (Unicode code point) of a text, as nanoGPT's shakespeare_char has.
//    ids 0, 1, 2 ... are the different characters of the corpus, in the order of their code points
// No id stands for other characters, and none begins documents. The file is a tokenizer.json that Hugging Face's
// tokenizers read with the same ids: a WordLevel vocabulary behind a Split into single characters.
#pragma once
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "io/text/tokenizer.hpp"

namespace kozero::io {

class CharacterTokenizer : public Tokenizer {
 public:
  /// `characters`: the code point of each id, all different and of valid UTF-8. `source`: for messages, such as a path.
  CharacterTokenizer(std::vector<char32_t> characters, std::string source);

  /// Its encoding throws Error(input) for text that is not UTF-8 or has another character.
  [[nodiscard]] std::unique_ptr<Encoder> encoder() const override;
  [[nodiscard]] std::string decode(std::span<const Token> tokens) const override;
  [[nodiscard]] int vocab_size() const override { return static_cast<int>(characters_.size()); }
  [[nodiscard]] std::string name() const override { return "chars:" + std::to_string(vocab_size()); }
  [[nodiscard]] Token end_of_text() const override { return -1; }
  [[nodiscard]] std::vector<Token> line_end() const override;
  void save(const std::string& path) const override;

 private:
  class CharacterEncoder;
  /// -1 for other characters.
  [[nodiscard]] Token id_of(char32_t character) const {
    return character < id_of_.size() ? id_of_[character] : Token{-1};
  }

  std::vector<char32_t> characters_;
  std::vector<Token> id_of_;  ///< by code point
  std::string source_;
};

/// The tokenizer of the characters of all documents.
std::unique_ptr<CharacterTokenizer> learn_characters(const Corpus& corpus);

/// The tokenizer of a tokenizer.json whose model is a WordLevel; null if it has another model. Throws Error(input)
/// naming `path` if it differs from what save() writes.
std::unique_ptr<CharacterTokenizer> read_characters(const std::string& path, std::string_view text);

}  // namespace kozero::io
