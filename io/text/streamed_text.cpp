// SPDX-FileCopyrightText: The KoZeRO authors
// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <cstdio>

#include <kozero/io/text/streamed_text.hpp>
#include <kozero/io/utf8.hpp>

namespace kozero::io {

namespace {

constexpr const char* kReplacement = "\xEF\xBF\xBD";  // U+FFFD
constexpr std::size_t kLongestWindow = 8;

std::string escaped(const char* format, unsigned value) {
  char text[8];
  std::snprintf(text, sizeof(text), format, value);
  return text;
}

/// A well-formed character, or the escape of a control character.
std::string shown(std::string_view character) {
  const auto first = static_cast<unsigned char>(character[0]);
  if (character.size() == 1 && (first < 0x20 || first == 0x7F) && first != '\n' && first != '\t') {
    return escaped("\\x%02x", first);
  }
  const auto last = static_cast<unsigned char>(character.back());
  if (character.size() == 2 && first == 0xC2 && last < 0xA0) return escaped("\\u%04x", last);
  return std::string(character);
}

}  // namespace

std::string ReadableText::add(std::string_view bytes) {
  held_ += bytes;
  return taken(false);
}

std::string ReadableText::finish() { return taken(true); }

std::string ReadableText::taken(bool is_end) {
  std::string text;
  std::size_t place = 0;
  while (place < held_.size()) {
    const std::string_view rest = std::string_view(held_).substr(place);
    if (const std::size_t length = utf8_character(rest); length > 0) {
      text += controls_ == Controls::escaped ? shown(rest.substr(0, length)) : std::string(rest.substr(0, length));
      place += length;
      continue;
    }
    const std::size_t begun = utf8_beginning(rest);
    if (begun == rest.size() && !is_end) break;
    text += kReplacement;
    place += std::max<std::size_t>(begun, 1);
  }
  held_.erase(0, place);
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
  // A tokenizer that gives characters, not bytes, has a U+FFFD where the bytes of a character are still coming.
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

}  // namespace kozero::io
