// SPDX-FileCopyrightText: The KoZeRO authors
// SPDX-License-Identifier: Apache-2.0
// character_tokenizer.cpp: the characters of a corpus, their ids, and the tokenizer.json that has them.
#include "io/text/character_tokenizer.hpp"
#include <fmt/format.h>
#include <algorithm>
#include <array>
#include <nlohmann/json.hpp>
#include <utility>

#include <kozero/core/error.hpp>
#include "io/posix/file.hpp"
#include "io/posix/readable.hpp"
#include "io/text/tokenizer_json.hpp"

namespace kozero::io {
namespace {

using Json = nlohmann::json;
using OrderedJson = nlohmann::ordered_json;

constexpr char32_t kCodePoints = 0x110000;

/// The code point of a well-formed character.
char32_t code_point(std::string_view character) {
  const auto byte = [&](std::size_t i) { return static_cast<char32_t>(static_cast<unsigned char>(character[i])); };
  constexpr std::array<char32_t, 5> kFirstBits = {0, 0x7F, 0x1F, 0x0F, 0x07};  // by the number of bytes
  char32_t point = byte(0) & kFirstBits[character.size()];
  for (std::size_t i = 1; i < character.size(); ++i) point = point << 6 | (byte(i) & 0x3F);
  return point;
}

void append_utf8(std::string& text, char32_t point) {
  const auto put = [&](char32_t byte) { text.push_back(static_cast<char>(byte)); };
  const auto put_rest = [&](int bits) {
    for (; bits >= 0; bits -= 6) put(0x80 | (point >> bits & 0x3F));
  };
  if (point < 0x80) return put(point);
  if (point < 0x800) {
    put(0xC0 | point >> 6);
    return put_rest(0);
  }
  if (point < 0x10000) {
    put(0xE0 | point >> 12);
    return put_rest(6);
  }
  put(0xF0 | point >> 18);
  put_rest(12);
}

/// Calls visit(character, offset) for each character; the bytes that are none are an empty character.
template <class Visit>
void for_each_character(std::string_view text, const Visit& visit) {
  for (std::size_t at = 0; at < text.size();) {
    const bool is_ascii = static_cast<unsigned char>(text[at]) < 0x80;
    const std::size_t length = is_ascii ? 1 : utf8_character(text.substr(at));
    visit(text.substr(at, length), at);
    at += std::max<std::size_t>(length, 1);
  }
}

/// The tokenizer.json of the characters by id. [\s\S] is any character, a line end too.
OrderedJson json_of(const std::vector<char32_t>& characters) {
  OrderedJson vocab = OrderedJson::object();
  auto& entries = vocab.get_ref<OrderedJson::object_t&>();  // appended without operator[]'s search: all differ
  for (std::size_t id = 0; id < characters.size(); ++id) {
    std::string character;
    append_utf8(character, characters[id]);
    entries.Container::emplace_back(std::move(character), id);
  }
  return {{"version", "1.0"},
          {"truncation", nullptr},
          {"padding", nullptr},
          {"added_tokens", OrderedJson::array()},
          {"normalizer", nullptr},
          {"pre_tokenizer",
           {{"type", "Split"}, {"pattern", {{"Regex", "[\\s\\S]"}}}, {"behavior", "Isolated"}, {"invert", false}}},
          {"post_processor", nullptr},
          {"decoder", {{"type", "Fuse"}}},
          {"model", {{"type", "WordLevel"}, {"vocab", vocab}, {"unk_token", "<unk>"}}}};
}

/// The characters of a vocabulary by id; empty if the tokens are not single characters with the ids 0, 1, 2 ...
std::vector<char32_t> characters_in(const Json& vocab) {
  if (!vocab.is_object() || vocab.size() > kCodePoints) return {};
  std::vector<char32_t> characters(vocab.size(), kCodePoints);
  for (const auto& [text, id] : vocab.items()) {
    if (text.empty() || utf8_character(text) != text.size()) return {};
    if (!id.is_number_unsigned() || id.get<std::uint64_t>() >= characters.size()) return {};
    char32_t& character = characters[id.get<std::size_t>()];
    if (character != kCodePoints) return {};  // two with this id
    character = code_point(text);
  }
  return characters;
}

}  // namespace

class CharacterTokenizer::CharacterEncoder : public Encoder {
 public:
  explicit CharacterEncoder(const CharacterTokenizer& tokenizer) : its_(tokenizer) {}

  void encode(std::string_view text, std::vector<Token>& out) override {
    out.reserve(out.size() + text.size());
    for_each_character(text, [&](std::string_view character, std::size_t at) {
      const Token id = character.empty() ? Token{-1} : its_.id_of(code_point(character));
      if (id < 0) refuse(text, character, at);
      out.push_back(id);
    });
  }

 private:
  [[noreturn]] void refuse(std::string_view text, std::string_view character, std::size_t at) const {
    if (character.empty()) {
      throw Error(Failure::input, fmt::format("{}: byte {} of the text, 0x{:02x}, is not UTF-8; accepted: UTF-8",
                                              its_.source_, at, static_cast<unsigned char>(text[at])));
    }
    throw Error(Failure::input,
                fmt::format("{}: no id for the character \"{}\" (U+{:04X}) of the text; accepted: the {} characters of "
                            "the text from which data.tokenizer = \"chars\" was learned",
                            its_.source_, printable_line(character), static_cast<std::uint32_t>(code_point(character)),
                            its_.vocab_size()));
  }

  const CharacterTokenizer& its_;
};

CharacterTokenizer::CharacterTokenizer(std::vector<char32_t> characters, std::string source)
    : characters_(std::move(characters)), source_(std::move(source)) {
  const auto last = std::ranges::max_element(characters_);
  if (last != characters_.end()) id_of_.resize(static_cast<std::size_t>(*last) + 1, -1);
  for (std::size_t id = 0; id < characters_.size(); ++id) id_of_[characters_[id]] = static_cast<Token>(id);
}

std::unique_ptr<Encoder> CharacterTokenizer::encoder() const { return std::make_unique<CharacterEncoder>(*this); }

std::string CharacterTokenizer::decode(std::span<const Token> tokens) const {
  std::string text;
  text.reserve(tokens.size());
  for (const Token token : tokens) {
    if (token < 0 || token >= vocab_size()) {
      throw Error(Failure::input, "tokenizer " + name() + ": id " + std::to_string(token) + " is outside [0, " +
                                      std::to_string(vocab_size()) + ")");
    }
    append_utf8(text, characters_[static_cast<std::size_t>(token)]);
  }
  return text;
}

std::vector<Token> CharacterTokenizer::line_end() const { return {std::max<Token>(id_of(U'\n'), 0)}; }

void CharacterTokenizer::save(const std::string& path) const {
  write_whole_file(path, json_of(characters_).dump(1) + "\n");
}

std::unique_ptr<CharacterTokenizer> learn_characters(const Corpus& corpus) {
  constexpr std::int64_t kBlockBytes = std::int64_t{64} << 10;
  std::vector<bool> is_there(kCodePoints);
  const auto reader = corpus.read(kBlockBytes);
  for (TextBlock block; reader->next(block);) {
    for_each_character(block.text, [&](std::string_view character, std::size_t /*at*/) {
      if (!character.empty()) is_there[code_point(character)] = true;
    });
  }
  std::vector<char32_t> characters;
  for (char32_t point = 0; point < kCodePoints; ++point) {
    if (is_there[point]) characters.push_back(point);
  }
  if (characters.empty()) characters.push_back(U'\n');  // a vocabulary is never empty
  return std::make_unique<CharacterTokenizer>(std::move(characters), "data.tokenizer = \"chars\"");
}

std::unique_ptr<CharacterTokenizer> read_characters(const std::string& path, std::string_view text) {
  if (text.find("\"WordLevel\"") == std::string_view::npos) return nullptr;
  Json json = parse_tokenizer_json(path, text);
  const Json model = json.is_object() ? json.value("model", Json()) : Json();
  if (!model.is_object() || model.value("type", Json()) != "WordLevel") return nullptr;
  json["post_processor"] = nullptr;  // not applied, as by BPE; transformers writes one that adds no token
  std::vector<char32_t> characters = characters_in(model.value("vocab", Json()));
  if (characters.empty() || Json(json_of(characters)) != json) {
    throw Error(Failure::input, path +
                                    ": model.type = \"WordLevel\": not a tokenizer of single characters as "
                                    "data.tokenizer = \"chars\" writes it; accepted are these, and BPE");
  }
  return std::make_unique<CharacterTokenizer>(std::move(characters), path);
}

}  // namespace kozero::io
