// SPDX-FileCopyrightText: The KoZeRO authors
// SPDX-License-Identifier: Apache-2.0
// tokenizer.cpp: the choice of a tokenizer, incremental decoding, and the byte tokenizer.
#include <algorithm>
#include <array>
#include <charconv>
#include <cstdio>

#include <kozero/core/error.hpp>
#include "io/posix/file.hpp"
#include "io/posix/named_file.hpp"
#include "io/posix/readable.hpp"
#include "io/text/bpe_tokenizer.hpp"
#include "io/text/character_tokenizer.hpp"
#include "io/text/sentencepiece_tokenizer.hpp"
#include "io/text/tokenizer.hpp"

namespace kozero::io {
namespace {

constexpr int kMinVocab = 257;  // the bytes and end-of-text
constexpr int kMaxVocab = 1'000'000;
constexpr std::int64_t kMaxFileBytes = std::int64_t{128} << 20;

[[noreturn]] void refuse(const std::string& spec) {
  const std::array<std::string, 3> names = {"bytes", "chars", "bpe:4096"};
  const std::string near = nearest_name(spec, names.data(), names.data() + names.size());
  throw Error(Failure::deck,
              "data.tokenizer = \"" + spec + "\": accepted: \"bytes\", \"chars\", \"bpe:N\" with N from " +
                  std::to_string(kMinVocab) + " to " + std::to_string(kMaxVocab) +
                  ", or the path of a tokenizer.json or a SentencePiece model, which is beside the weights of a "
                  "published model: hf download openai-community/gpt2 tokenizer.json" +
                  (near.empty() ? "" : "; did you mean \"" + near + "\"?"));
}

/// The tokenizer of a file of any supported kind.
std::unique_ptr<Tokenizer> load_tokenizer(const std::string& path) {
  std::string bytes = read_named_file(path, kMaxFileBytes);
  if (looks_like_sentencepiece(bytes)) return std::make_unique<SentencePieceTokenizer>(path, std::move(bytes));
  if (bytes == ByteTokenizer::file_text() || bytes == ByteTokenizer::hugging_face_text()) {
    return std::make_unique<ByteTokenizer>();
  }
  if (auto characters = read_characters(path, bytes)) return characters;
  return std::make_unique<BpeTokenizer>(path, std::move(bytes));
}

constexpr const char* kReplacement = "\xEF\xBF\xBD";  // U+FFFD
constexpr std::size_t kLongestWindow = 8;

std::string escaped(const char* format, unsigned value) {
  char text[8];
  std::snprintf(text, sizeof(text), format, value);
  return text;
}

/// The character, which is well-formed; escaped if it is a control character.
std::string shown(std::string_view character) {
  const auto first = static_cast<unsigned char>(character[0]);
  if (character.size() == 1 && (first < 0x20 || first == 0x7F) && first != '\n' && first != '\t') {
    return escaped("\\x%02x", first);
  }
  const auto last = static_cast<unsigned char>(character.back());
  if (character.size() == 2 && first == 0xC2 && last < 0xA0) return escaped("\\u%04x", last);
  return std::string(character);
}

class ByteEncoder : public Encoder {
 public:
  void encode(std::string_view text, std::vector<Token>& out) override {
    for (const char byte : text) out.push_back(static_cast<unsigned char>(byte));
  }
};

}  // namespace

Encoder& Tokenizer::own_encoder() const {
  if (own_encoder_ == nullptr) own_encoder_ = encoder();
  return *own_encoder_;
}

std::vector<Token> Tokenizer::encode(std::string_view text) const {
  std::vector<Token> tokens;
  own_encoder().encode(text, tokens);
  return tokens;
}

std::vector<Token> Tokenizer::encode_rest(std::string_view text) const {
  std::vector<Token> tokens;
  own_encoder().encode_rest(text, tokens);
  return tokens;
}

std::optional<int> bpe_size(const std::string& spec) {
  if (!spec.starts_with("bpe:")) return std::nullopt;
  int size = 0;
  const auto [end, problem] = std::from_chars(spec.data() + 4, spec.data() + spec.size(), size);
  if (problem != std::errc() || end != spec.data() + spec.size() || size < kMinVocab || size > kMaxVocab) refuse(spec);
  return size;
}

std::unique_ptr<Tokenizer> make_tokenizer(const std::string& spec, const Corpus* corpus, const std::string& split) {
  if (spec == "bytes") return std::make_unique<ByteTokenizer>();
  const auto size = bpe_size(spec);
  if (size || spec == kCharacters) {
    if (corpus == nullptr) {
      throw Error(Failure::deck, "data.tokenizer = \"" + spec +
                                     "\" is trained on text: give data.text, or the path of a tokenizer's file");
    }
    if (!size) return learn_characters(*corpus);
    return train_bpe(*corpus, *size, published_split(split));
  }
  if (!is_there(spec)) refuse(spec);
  return load_tokenizer(spec);
}

std::string ReadableText::add(std::string_view bytes) {
  held_ += bytes;
  return taken(false);
}

std::string ReadableText::finish() { return taken(true); }

std::string ReadableText::taken(bool is_end) {
  std::string text;
  std::size_t offset = 0;
  while (offset < held_.size()) {
    const std::string_view rest = std::string_view(held_).substr(offset);
    if (const std::size_t length = utf8_character(rest); length > 0) {
      text += controls_ == Controls::escaped ? shown(rest.substr(0, length)) : std::string(rest.substr(0, length));
      offset += length;
      continue;
    }
    const std::size_t begun = utf8_beginning(rest);
    if (begun == rest.size() && !is_end) break;
    text += kReplacement;
    offset += std::max<std::size_t>(begun, 1);
  }
  held_.erase(0, offset);
  return text;
}

StreamedText::StreamedText(const Tokenizer& tokenizer, const std::vector<Token>& before,
                           ReadableText::Controls controls)
    : tokenizer_(tokenizer), readable_(controls) {
  if (!before.empty()) window_.push_back(before.back());
  shown_ = tokenizer_.decode(window_).size();
}

std::string StreamedText::add(Token token) {
  window_.push_back(token);
  const std::string text = tokenizer_.decode(window_);
  // A tokenizer that decodes to characters gives U+FFFD until all bytes of a character are there.
  const bool waits = text.size() <= shown_ || text.ends_with(kReplacement);
  if (waits && window_.size() < kLongestWindow) return "";
  const std::string added = text.size() <= shown_ ? "" : text.substr(shown_);
  window_ = {token};
  shown_ = tokenizer_.decode(window_).size();
  return readable_.add(added);
}

std::string StreamedText::finish() {
  const std::string text = tokenizer_.decode(window_);
  const std::string rest = text.size() > shown_ ? readable_.add(text.substr(shown_)) : "";
  shown_ = text.size();
  return rest + readable_.finish();
}

std::unique_ptr<Encoder> ByteTokenizer::encoder() const { return std::make_unique<ByteEncoder>(); }

std::string ByteTokenizer::decode(std::span<const Token> tokens) const {
  std::string text;
  text.reserve(tokens.size());
  for (const Token token : tokens) {
    if (token < 0 || token > 255) {
      throw Error(Failure::input, "tokenizer bytes: id " + std::to_string(token) + " is outside [0, 256)");
    }
    text.push_back(static_cast<char>(token));
  }
  return text;
}

void ByteTokenizer::save(const std::string& path) const { write_whole_file(path, file_text()); }

}  // namespace kozero::io
