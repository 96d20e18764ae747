// SPDX-FileCopyrightText: The KoZeRO authors
// SPDX-License-Identifier: Apache-2.0
// sentencepiece_tokenizer.cpp: checks a SentencePiece model, and encodes and decodes with it.
//   ModelProto (protobuf): 1 pieces {1 text, 2 score, 3 type}  2 trainer {3 kind, 24 blanks behind words}
//   3 normalizer {2 character map, 4 fewer blanks, 5 blanks become U+2581}  5 denormalizer
// Format: sentencepiece_model.proto; darts-clone for the layout of the units of the character map's double-array trie.
#include <sentencepiece_processor.h>
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <optional>

#include <kozero/core/error.hpp>
#include "io/posix/file.hpp"
#include "io/posix/readable.hpp"
#include "io/text/pretoken_cache.hpp"
#include "io/text/sentencepiece_tokenizer.hpp"

namespace kozero::io {

namespace {

constexpr std::string_view kBlank = "\xE2\x96\x81";  // U+2581, which represents a blank in pieces

/// A field of a protobuf message: its number, and its bytes if it has a length or a fixed width.
struct Field {
  std::uint64_t number;
  std::uint64_t wire;  // 0 varint, 1 eight bytes, 2 with length, 5 four bytes
  std::string_view bytes;
  std::uint64_t value;
};

class Checker {
 public:
  explicit Checker(std::string path) : path_(std::move(path)) {}

  void check_model(std::string_view bytes) {
    while (!bytes.empty()) {
      const Field field = next(bytes);
      if (field.number == 1) check_piece(message(field));
      if (field.number == 2) read_trainer(message(field));
      if (field.number == 3) read_normalizer(message(field));
      if (field.number == 5) check_map_of(message(field));
    }
    if (num_pieces_ == 0) refuse("it has no pieces");
  }

  [[nodiscard]] bool words_are_apart() const {
    return merges_ && blanks_before_words_ && keeps_characters_ && keeps_blanks_ && !piece_crosses_words_;
  }

 private:
  [[noreturn]] void refuse(const std::string& reason) const {
    throw Error(Failure::input, path_ + ": not a SentencePiece model: " + reason);
  }

  std::uint64_t varint(std::string_view& bytes) const {
    std::uint64_t value = 0;
    for (int shift = 0; shift < 64 && !bytes.empty(); shift += 7) {
      const auto byte = static_cast<unsigned char>(bytes.front());
      bytes.remove_prefix(1);
      value |= static_cast<std::uint64_t>(byte & 0x7F) << shift;
      if (byte < 0x80) return value;
    }
    refuse("cut off or malformed");
  }

  /// Removes the first field from `bytes` and returns it.
  Field next(std::string_view& bytes) const {
    const std::uint64_t tag = varint(bytes);
    Field field{tag >> 3, tag & 7, {}, 0};
    if (field.wire == 0) {
      field.value = varint(bytes);
      return field;
    }
    if (field.wire != 1 && field.wire != 2 && field.wire != 5) refuse("a field of kind " + std::to_string(field.wire));
    const std::uint64_t size = field.wire == 2 ? varint(bytes) : field.wire == 1 ? 8 : 4;
    if (size > bytes.size()) {
      refuse("a field of " + std::to_string(size) + " bytes where " + std::to_string(bytes.size()) + " are left");
    }
    field.bytes = bytes.substr(0, size);
    bytes.remove_prefix(size);
    return field;
  }

  std::string_view message(const Field& field) const {
    if (field.wire != 2) refuse("field " + std::to_string(field.number) + " is not a message");
    return field.bytes;
  }

  void check_piece(std::string_view bytes) {
    const std::string where = "piece " + std::to_string(num_pieces_++);
    std::string_view text;
    while (!bytes.empty()) {
      const Field field = next(bytes);
      if (field.number == 1) text = message(field);
      if (field.number == 2) {
        float score = 0.0F;
        if (field.wire != 5) refuse(where + " has no score");
        std::memcpy(&score, field.bytes.data(), sizeof(score));
        if (!std::isfinite(score)) refuse(where + " has a score that is not finite");
      }
      if (field.number == 3 && (field.wire != 0 || field.value < 1 || field.value > 6))
        refuse(where + " has an unknown type");
    }
    const std::size_t word = first_not_blank(text);
    piece_crosses_words_ = piece_crosses_words_ || text.find(kBlank, word) != std::string_view::npos;
    if (text.empty() || text.find('\0') != std::string_view::npos) refuse(where + " is empty or contains a byte 0");
  }

  static std::size_t first_not_blank(std::string_view text) {
    std::size_t offset = 0;
    while (text.substr(offset).starts_with(kBlank)) offset += kBlank.size();
    return offset;
  }

  void read_trainer(std::string_view bytes) {
    while (!bytes.empty()) {
      const Field field = next(bytes);
      if (field.number == 3) merges_ = field.value == 2;
      if (field.number == 24) blanks_before_words_ = field.value == 0;
    }
  }

  void read_normalizer(std::string_view bytes) {
    keeps_characters_ = !check_map_of(bytes);
    keeps_blanks_ = false;  // the format's default
    bool shows_blanks = true;
    while (!bytes.empty()) {
      const Field field = next(bytes);
      if (field.number == 4) keeps_blanks_ = field.value == 0;
      if (field.number == 5) shows_blanks = field.value != 0;
    }
    keeps_blanks_ = keeps_blanks_ && shows_blanks;
  }

  /// Returns whether a normalizer has a character map.
  bool check_map_of(std::string_view bytes) const {
    bool has_map = false;
    while (!bytes.empty()) {
      const Field field = next(bytes);
      if (field.number != 2 || message(field).empty()) continue;
      check_character_map(field.bytes);
      has_map = true;
    }
    return has_map;
  }

  /// The map has the size of the trie in bytes, the trie, and texts that each end with a byte 0. Refuses the map unless
  /// every transition of the trie stays inside it and every value is the offset of a text.
  void check_character_map(std::string_view map) const {
    const auto word = [&](std::size_t offset) {
      std::uint32_t value = 0;
      std::memcpy(&value, map.data() + offset, sizeof(value));
      return value;
    };
    if (map.size() < 4 || word(0) >= map.size() - 4 || word(0) % 1024 != 0 || word(0) == 0 || map.back() != '\0') {
      refuse("its character map has wrong sizes");
    }
    const std::size_t num_units = word(0) / 4;
    const std::size_t num_text_bytes = map.size() - 4 - word(0);
    for (std::size_t i = 0; i < num_units; ++i) {
      const std::uint32_t unit = word(4 + 4 * i);
      if ((unit >> 31) != 0) continue;  // a value
      const std::size_t child = i ^ (static_cast<std::size_t>(unit >> 10) << ((unit & (1U << 9)) >> 6));
      const bool has_value = (unit & (1U << 8)) != 0;
      if (child >= num_units || (has_value && (word(4 + 4 * child) & 0x7FFFFFFFU) >= num_text_bytes)) {
        refuse("its character map points outside itself");
      }
    }
  }

  std::string path_;
  std::int64_t num_pieces_ = 0;
  bool merges_ = false;
  bool blanks_before_words_ = true;
  bool keeps_characters_ = false;
  bool keeps_blanks_ = false;
  bool piece_crosses_words_ = false;
};

std::vector<Token> ids_of(const sentencepiece::SentencePieceProcessor& processor, std::string_view text) {
  std::vector<Token> tokens;
  const auto status = processor.Encode(text, &tokens);
  require(status.ok(), "SentencePiece: " + status.ToString());
  return tokens;
}

/// The end of the text's first word, including the blanks before it.
std::size_t first_word(std::string_view text) {
  const std::size_t begin = text.find_first_not_of(' ');
  return begin == std::string_view::npos ? text.size() : std::min(text.find(' ', begin), text.size());
}

}  // namespace

bool looks_like_sentencepiece(std::string_view bytes) {
  const std::size_t first = bytes.find_first_not_of(" \t\r\n");
  return bytes.starts_with('\n') && first != std::string_view::npos && bytes[first] != '{' && bytes[first] != '[';
}

bool check_sentencepiece(const std::string& path, std::string_view bytes) {
  Checker checker(path);
  checker.check_model(bytes);
  return checker.words_are_apart();
}

SentencePieceTokenizer::SentencePieceTokenizer(const std::string& path, std::string model)
    : model_(std::move(model)), processor_(std::make_unique<sentencepiece::SentencePieceProcessor>()) {
  const bool words_are_apart = check_sentencepiece(path, model_);
  try {
    const auto status = processor_->LoadFromSerializedProto(model_);
    if (!status.ok())
      throw Error(Failure::input, path + ": not a SentencePiece model: " + on_one_line(status.ToString()));
  } catch (const std::exception& problem) {
    if (dynamic_cast<const Error*>(&problem) != nullptr) throw;
    throw Error(Failure::input, path + ": not a SentencePiece model: " + on_one_line(problem.what()));
  }
  const Token found = processor_->PieceToId(kBlank);
  blank_ = processor_->IsUnknown(found) ? -1 : found;
  const auto letter = processor_->EncodeAsPieces("a");
  blank_before_text_ = !letter.empty() && letter.front().rfind(kBlank, 0) == 0;
  word_by_word_ = words_are_apart && blank_before_text_ && blank_ >= 0;
}

SentencePieceTokenizer::~SentencePieceTokenizer() = default;

/// Encodes word by word if the model allows that.
class SentencePieceTokenizer::WordEncoder : public Encoder {
 public:
  explicit WordEncoder(const SentencePieceTokenizer& tokenizer) : its_(tokenizer) {}

  void encode(std::string_view text, std::vector<Token>& out) override {
    // The library treats a U+2581 in the text as a blank, but first_word does not cut there.
    const bool by_words = its_.word_by_word_ && text.find(kBlank) == std::string_view::npos;
    std::size_t end = by_words ? first_word(text) : text.size();
    append(ids_of(*its_.processor_, text.substr(0, end)), out);
    while (end < text.size()) {
      const std::string_view word = text.substr(end, first_word(text.substr(end)));
      encode_word(word, out);
      end += word.size();
    }
  }

  void encode_rest(std::string_view text, std::vector<Token>& out) override {
    if (!its_.blank_before_text_) return encode(text, out);
    if (text.starts_with(' ')) return encode(text.substr(1), out);  // the model adds a blank in its place
    const auto first = std::ssize(out);
    encode(text, out);
    if (std::ssize(out) > first && out[static_cast<std::size_t>(first)] == its_.blank_) out.erase(out.begin() + first);
  }

 private:
  static void append(std::span<const Token> ids, std::vector<Token>& out) {
    out.insert(out.end(), ids.begin(), ids.end());
  }

  /// `word` begins with a blank. The library is given the rest, since it puts a blank before any text except an empty
  /// one.
  void encode_word(std::string_view word, std::vector<Token>& out) {
    std::array<Token, PretokenCache::kMaxTokens> known;
    if (const std::size_t size = cache_.find(word, cache_.place_of(word, false), known.data()); size > 0) {
      return append(std::span(known).first(size), out);
    }
    std::vector<Token> ids = ids_of(*its_.processor_, word.substr(1));
    if (ids.empty()) ids.push_back(its_.blank_);
    cache_.keep(word, ids);
    append(ids, out);
  }

  const SentencePieceTokenizer& its_;
  PretokenCache cache_;
};

std::unique_ptr<Encoder> SentencePieceTokenizer::encoder() const { return std::make_unique<WordEncoder>(*this); }

std::string SentencePieceTokenizer::decode(std::span<const Token> tokens) const {
  for (const Token token : tokens) {
    if (token < 0 || token >= vocab_size()) {
      throw Error(Failure::input, "tokenizer " + name() + ": id " + std::to_string(token) + " is outside [0, " +
                                      std::to_string(vocab_size()) + ")");
    }
  }
  std::string text;
  const auto status = processor_->Decode(std::vector<int>(tokens.begin(), tokens.end()), &text);
  require(status.ok(), "SentencePiece: " + status.ToString());
  return text;
}

int SentencePieceTokenizer::vocab_size() const { return processor_->GetPieceSize(); }

Token SentencePieceTokenizer::end_of_text() const {
  return processor_->bos_id() >= 0 ? processor_->bos_id() : processor_->eos_id();
}

bool SentencePieceTokenizer::ends_text(Token token) const {
  return token >= 0 && (token == end_of_text() || token == processor_->eos_id());
}

void SentencePieceTokenizer::save(const std::string& path) const { write_whole_file(path, model_); }

}  // namespace kozero::io
