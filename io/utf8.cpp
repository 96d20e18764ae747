// SPDX-FileCopyrightText: The KoZeRO authors
// SPDX-License-Identifier: Apache-2.0
#include <cstdint>
#include <cstring>

#include <fmt/format.h>

#include <kozero/io/utf8.hpp>

namespace kozero::io {

namespace {

/// Length and the accepted range of the second byte for each lead byte (Unicode standard, table 3-7); later bytes are
/// 80..BF always.
struct Lead {
  std::size_t length;
  unsigned char low, high;
};

Lead lead_of(unsigned char byte) {
  if (byte < 0x80) return {1, 0, 0};
  if (byte < 0xC2) return {0, 0, 0};
  if (byte < 0xE0) return {2, 0x80, 0xBF};
  if (byte < 0xF0) {
    return {3, static_cast<unsigned char>(byte == 0xE0 ? 0xA0 : 0x80),
            static_cast<unsigned char>(byte == 0xED ? 0x9F : 0xBF)};
  }
  if (byte < 0xF5) {
    return {4, static_cast<unsigned char>(byte == 0xF0 ? 0x90 : 0x80),
            static_cast<unsigned char>(byte == 0xF4 ? 0x8F : 0xBF)};
  }
  return {0, 0, 0};
}

/// Eight bytes at once that are all ASCII.
bool ascii_word(const char* bytes) {
  std::uint64_t word = 0;
  std::memcpy(&word, bytes, sizeof(word));
  return (word & 0x8080808080808080ULL) == 0;
}

/// Bytes of the ill-formed sequence at the front: as many as could begin a character, at least 1.
std::size_t ill_formed_length(std::string_view text) {
  const auto byte = [&](std::size_t i) { return static_cast<unsigned char>(text[i]); };
  const Lead lead = lead_of(byte(0));
  if (lead.length == 0 || text.size() < 2 || byte(1) < lead.low || byte(1) > lead.high) return 1;
  std::size_t length = 2;
  while (length < text.size() && length < lead.length && (byte(length) & 0xC0U) == 0x80U) ++length;
  return length;
}

/// The escape of a control character (U+0000 to U+001F but tab and line feed, U+007F to U+009F); "" for any other.
std::string escaped_control(std::string_view character) {
  const auto first = static_cast<unsigned char>(character[0]);
  if (character.size() == 1 && first != '\t' && first != '\n' && (first < 0x20 || first == 0x7F)) {
    return fmt::format("\\x{:02x}", first);
  }
  const bool is_c1 = first == 0xC2 && static_cast<unsigned char>(character[1]) < 0xA0;
  return is_c1 ? fmt::format("\\u{:04x}", static_cast<unsigned char>(character[1])) : "";
}

}  // namespace

std::size_t utf8_character(std::string_view text) {
  if (text.empty()) return 0;
  const auto byte = [&](std::size_t i) { return static_cast<unsigned char>(text[i]); };
  const Lead lead = lead_of(byte(0));
  if (lead.length == 1) return 1;
  if (lead.length == 0 || text.size() < lead.length || byte(1) < lead.low || byte(1) > lead.high) return 0;
  for (std::size_t i = 2; i < lead.length; ++i) {
    if ((byte(i) & 0xC0U) != 0x80U) return 0;
  }
  return lead.length;
}

std::size_t utf8_beginning(std::string_view text) {
  if (text.empty() || utf8_character(text) > 0) return 0;
  const auto byte = [&](std::size_t i) { return static_cast<unsigned char>(text[i]); };
  const Lead lead = lead_of(byte(0));
  if (lead.length == 0) return 0;
  std::size_t end = 1;
  while (end < lead.length && end < text.size()) {
    const bool fits = end == 1 ? byte(1) >= lead.low && byte(1) <= lead.high : (byte(end) & 0xC0U) == 0x80U;
    if (!fits) break;
    ++end;
  }
  return end;
}

std::size_t utf8_prefix(std::string_view text) {
  std::size_t end = 0;
  while (end < text.size()) {
    if (text.size() - end >= 8 && ascii_word(text.data() + end)) {
      end += 8;
      continue;
    }
    const std::size_t length = utf8_character(text.substr(end));
    if (length == 0) break;
    end += length;
  }
  return end;
}

std::string printable(std::string_view text) {
  constexpr std::string_view kReplacement = "\xEF\xBF\xBD";  // U+FFFD
  std::string result;
  result.reserve(text.size());
  while (!text.empty()) {
    const std::size_t length = utf8_character(text);
    if (length == 0) {
      result += kReplacement;
      text.remove_prefix(ill_formed_length(text));
      continue;
    }
    const std::string_view character = text.substr(0, length);
    const std::string escaped = escaped_control(character);
    result += escaped.empty() ? character : escaped;
    text.remove_prefix(length);
  }
  return result;
}

}  // namespace kozero::io
