// SPDX-FileCopyrightText: The KoZeRO authors
// SPDX-License-Identifier: Apache-2.0
// character_classes.hpp: the classes of characters that the published split patterns distinguish, for all of Unicode.
//    \p{L} letters    \p{N} numbers    \s white space (the property White_Space)
// Letters and numbers are those of Unicode 16.0, whichever version the libraries of this machine have, so that a text
// has the same pretokens everywhere. Hugging Face's tokenizers 0.23 has the same version.
#pragma once
#include <array>
#include <cstddef>
#include <cstdint>
#include <string_view>

namespace kozero::io {

/// A set of these bits. A character without kLetter, kNumber and kSpace is of the class [^\s\p{L}\p{N}].
using CharacterClass = std::uint8_t;
inline constexpr CharacterClass kLetter = 1, kNumber = 2, kSpace = 4;
inline constexpr CharacterClass kBlank = 8;        ///< U+0020
inline constexpr CharacterClass kNewline = 16;     ///< CR or LF
inline constexpr CharacterClass kApostrophe = 32;  ///< U+0027
inline constexpr CharacterClass kCharacter = 64;   ///< every character

/// The class of an ASCII character, in arithmetic that compilers vectorize.
constexpr CharacterClass ascii_class(unsigned char c) {
  const bool is_letter = static_cast<unsigned char>((c | 0x20) - 'a') < 26;
  const bool is_number = static_cast<unsigned char>(c - '0') < 10;
  const bool is_control_space = static_cast<unsigned char>(c - '\t') < 5;  // tab, LF, VT, FF, CR
  return static_cast<CharacterClass>(kCharacter | (is_letter ? kLetter : 0) | (is_number ? kNumber : 0) |
                                     (is_control_space ? kSpace : 0) | (c == ' ' ? kSpace | kBlank : 0) |
                                     (c == '\n' || c == '\r' ? kNewline : 0) | (c == '\'' ? kApostrophe : 0));
}

/// A character above ASCII at the front of a text.
struct DecodedCharacter {
  std::uint32_t code;
  std::uint32_t num_bytes;  ///< 0: the bytes are no well-formed UTF-8
};

/// Decodes a character of two or more bytes. `bytes` is not empty.
inline DecodedCharacter decode_character(std::string_view bytes) {
  const auto at = [&](std::size_t i) { return static_cast<std::uint32_t>(static_cast<unsigned char>(bytes[i])); };
  const auto follows = [&](std::size_t i) { return (at(i) & 0xC0) == 0x80; };
  const std::uint32_t lead = at(0);
  if (lead >= 0xE0 && lead < 0xF0) {
    if (bytes.size() < 3 || !follows(1) || !follows(2)) return {0, 0};
    const std::uint32_t code = ((lead & 0x0F) << 12) | ((at(1) & 0x3F) << 6) | (at(2) & 0x3F);
    return {code, code < 0x800 || (code >= 0xD800 && code < 0xE000) ? 0U : 3U};
  }
  if (lead >= 0xC2 && lead < 0xE0) {
    if (bytes.size() < 2 || !follows(1)) return {0, 0};
    return {((lead & 0x1F) << 6) | (at(1) & 0x3F), 2};
  }
  if (lead < 0xF0 || lead > 0xF4 || bytes.size() < 4 || !follows(1) || !follows(2) || !follows(3)) return {0, 0};
  const std::uint32_t code = ((lead & 0x07) << 18) | ((at(1) & 0x3F) << 12) | ((at(2) & 0x3F) << 6) | (at(3) & 0x3F);
  return {code, code < 0x10000 || code > 0x10FFFF ? 0U : 4U};
}

/// The class of every character below U+40000. Above are no letters, numbers or spaces.
using CharacterClasses = std::array<CharacterClass, 0x40000>;
const CharacterClasses& character_classes();

}  // namespace kozero::io
