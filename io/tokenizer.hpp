// SPDX-FileCopyrightText: The KoZeRO authors
// SPDX-License-Identifier: Apache-2.0
// tokenizer.hpp: text <-> token ids, as the rest of KoZeRO sees it.
//   decode(encode(bytes)) == bytes        for every byte sequence, UTF-8 or not, where the tokenizer loses nothing
// (a normaliser, an added blank, SentencePiece change the text). Each document of a corpus begins with end_of_text(),
// as llm.c's shards do. Special tokens written out in the text become their ids, as the published tokenizers do by
// default. One object serves one thread.
#pragma once
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include <kozero/core/views.hpp>
#include <kozero/io/text_source.hpp>

namespace kozero::io {

class Tokenizer {
 public:
  virtual ~Tokenizer() = default;
  [[nodiscard]] virtual std::vector<Token> encode(std::string_view text) const = 0;
  /// The tokens of text that goes on from earlier text of the same document, cut as TextReader cuts: without what the
  /// tokenizer puts before a text.
  [[nodiscard]] virtual std::vector<Token> encode_rest(std::string_view text) const { return encode(text); }
  /// Throws Error(input) for an id outside [0, vocab_size()).
  [[nodiscard]] virtual std::string decode(std::span<const Token> tokens) const = 0;
  [[nodiscard]] virtual int vocab_size() const = 0;
  /// For the banner and descriptions: "bytes", "bpe:4096".
  [[nodiscard]] virtual std::string name() const = 0;
  /// The id that begins a document, or -1 where there is none.
  [[nodiscard]] virtual Token end_of_text() const = 0;
  /// Whether generated text ends with this id.
  [[nodiscard]] virtual bool ends_text(Token token) const { return token >= 0 && token == end_of_text(); }
  /// The usual name of its file.
  [[nodiscard]] virtual std::string file_name() const { return "tokenizer.json"; }
  /// Writes a file that make_tokenizer reads. Throws Error(write).
  virtual void save(const std::string& path) const = 0;
};

/// N of "bpe:N"; nothing where the spec has another form. Throws Error(deck) with the accepted set.
std::optional<int> bpe_size(const std::string& spec);

/// What `data.tokenizer` asks for: "bytes"; "bpe:N", trained on `corpus` to at most N ids; or the path of a saved one,
/// of a Hugging Face tokenizer.json (tokenizer_json.hpp) or of a SentencePiece model. Throws Error(deck) with the
/// accepted set, Error(input) for a file that is malformed or not supported.
std::unique_ptr<Tokenizer> make_tokenizer(const std::string& spec, const std::vector<TextFile>& corpus = {});

}  // namespace kozero::io
