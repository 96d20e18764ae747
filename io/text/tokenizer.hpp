// SPDX-FileCopyrightText: The KoZeRO authors
// SPDX-License-Identifier: Apache-2.0
// tokenizer.hpp: the tokenizer interface, incremental decoding and the byte tokenizer.
//    decode(encode(bytes)) == bytes        for every byte sequence, UTF-8 or not
// This does not hold for tokenizers that change the text: by a normalizer, an added blank or SentencePiece. Each
// document of a corpus begins with end_of_text(), as in llm.c's shards. encode() turns special tokens that are written
// out in a text, such as a prompt, into their ids, as the published tokenizers do by default. Documents of a corpus are
// encoded by encode_ordinary(), so that no text forges the end of a document. make_tokenizer makes the tokenizer that a
// deck names. Several threads may use one tokenizer, each with its own encoder().
#pragma once
#include <array>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include <kozero/core/views.hpp>
#include "io/text/document_reader.hpp"

namespace kozero::io {

/// Encodes with a tokenizer, for one thread, and remembers the tokens of words that it has met.
class Encoder {
 public:
  virtual ~Encoder() = default;
  /// Appends the tokens of the text to `out`.
  virtual void encode(std::string_view text, std::vector<Token>& out) = 0;
  /// The same as encode(), but a special token that is written out in the text is encoded as ordinary text.
  virtual void encode_ordinary(std::string_view text, std::vector<Token>& out) { encode(text, out); }
  /// The same as encode_ordinary() for text that continues earlier text of the same document, cut as DocumentReader
  /// cuts: without the blank that the tokenizer puts before a text.
  virtual void encode_rest(std::string_view text, std::vector<Token>& out) { encode_ordinary(text, out); }
};

class Tokenizer {
 public:
  Tokenizer() = default;
  Tokenizer(const Tokenizer&) = delete;
  Tokenizer& operator=(const Tokenizer&) = delete;
  virtual ~Tokenizer() = default;
  /// The tokenizer outlives its encoders.
  [[nodiscard]] virtual std::unique_ptr<Encoder> encoder() const = 0;
  /// By an encoder that the tokenizer has for this: from one thread at a time.
  [[nodiscard]] std::vector<Token> encode(std::string_view text) const;
  [[nodiscard]] std::vector<Token> encode_rest(std::string_view text) const;
  /// Throws Error(input) for an id outside [0, vocab_size()).
  [[nodiscard]] virtual std::string decode(std::span<const Token> tokens) const = 0;
  [[nodiscard]] virtual int vocab_size() const = 0;
  /// For the banner and descriptions: "bytes", "chars:65", "bpe:4096".
  [[nodiscard]] virtual std::string name() const = 0;
  /// The id that begins a document, or -1 if there is none.
  [[nodiscard]] virtual Token end_of_text() const = 0;
  /// With what generated text begins if it has no prompt: a line's end, or another token if there is none.
  [[nodiscard]] virtual std::vector<Token> line_end() const { return encode("\n"); }
  /// The id of the added token that is written so, such as <|im_end|>; -1 if there is none.
  [[nodiscard]] virtual Token added_token(std::string_view /*text*/) const { return -1; }
  /// How many special tokens are written out in the text.
  [[nodiscard]] virtual std::int64_t count_special(std::string_view /*text*/) const { return 0; }
  /// Whether the text of each token is known apart from its neighbors: decode(a b) = decode(a) decode(b).
  [[nodiscard]] virtual bool decodes_by_token() const { return true; }
  /// Whether generated text ends with this id.
  [[nodiscard]] virtual bool ends_text(Token token) const { return token >= 0 && token == end_of_text(); }
  /// The usual name of its file.
  [[nodiscard]] virtual std::string file_name() const { return "tokenizer.json"; }
  /// Writes a file that make_tokenizer reads. Throws Error(write).
  virtual void save(const std::string& path) const = 0;

 private:
  Encoder& own_encoder() const;

  mutable std::unique_ptr<Encoder> own_encoder_;  ///< made at its first use
};

inline constexpr const char* kCharacters = "chars";

/// N of "bpe:N"; nothing if the spec has another form. Throws Error(deck) with the accepted set.
std::optional<int> bpe_size(const std::string& spec);

/// The tokenizer named by `data.tokenizer`: "bytes"; "chars", the characters of `corpus`; "bpe:N", trained on `corpus`
/// to at most N ids, with the published split of this name (pretokenizer.hpp); or the path of a saved tokenizer, a
/// Hugging Face tokenizer.json (tokenizer_json.hpp) or a SentencePiece model. Throws Error(deck) with the accepted
/// values, Error(input) for a file that is malformed or not supported.
std::unique_ptr<Tokenizer> make_tokenizer(const std::string& spec, const Corpus* corpus = nullptr,
                                          const std::string& split = "");

/// Bytes -> whole UTF-8 characters, for text that is shown while it is generated. Ill-formed bytes become U+FFFD (one
/// per maximal subpart, Unicode 15, section 3.9). Control characters other than newline and tab are escaped: \x1b, and
/// \u009b from U+0080 on. Bytes of an incomplete character are held back until more bytes follow, or until finish().
class ReadableText {
 public:
  enum class Controls { escaped, kept };
  explicit ReadableText(Controls controls = Controls::escaped) : controls_(controls) {}

  /// The text that can be shown now and was not shown before.
  std::string add(std::string_view bytes);
  /// The bytes that add held back.
  std::string finish();

 private:
  std::string taken(bool is_end);

  Controls controls_;
  std::string held_;
};

/// Tokens -> the text that each adds to the tokens before it, through a ReadableText.
class StreamedText {
 public:
  /// Continues a text whose tokens are `before`. `tokenizer` outlives the object.
  StreamedText(const Tokenizer& tokenizer, const std::vector<Token>& before, ReadableText::Controls controls);

  std::string add_text(std::string_view bytes) { return readable_.add(bytes); }
  std::string add(Token token);
  std::string finish();

 private:
  const Tokenizer& tokenizer_;
  ReadableText readable_;
  /// the last tokens, decoded together because their text depends on each other: a blank between words, a character's
  /// bytes
  std::vector<Token> window_;
  std::size_t shown_ = 0;  // bytes of the window's text
};

/// Each byte is a token; the vocabulary has 256. Byte 0, which text does not contain, is also end-of-text, so documents
/// are separated without a 257th id. A byte 0 in the input still round-trips.
class ByteTokenizer : public Tokenizer {
 public:
  [[nodiscard]] std::unique_ptr<Encoder> encoder() const override;
  [[nodiscard]] std::string decode(std::span<const Token> tokens) const override;
  [[nodiscard]] int vocab_size() const override { return 256; }
  [[nodiscard]] std::string name() const override { return "bytes"; }
  [[nodiscard]] Token end_of_text() const override { return 0; }
  void save(const std::string& path) const override;
  /// The text that save writes.
  static std::string file_text() { return "{\"kozero_tokenizer\": \"bytes\"}\n"; }
  /// The same tokenizer as a Hugging Face tokenizer.json: byte-level BPE of the 256 byte characters without a merge.
  static std::string hugging_face_text();
};

}  // namespace kozero::io
