// SPDX-FileCopyrightText: The KoZeRO authors
// SPDX-License-Identifier: Apache-2.0
#include <array>

#include <kozero/io/byte_alphabet.hpp>

namespace kozero::io {

namespace {

constexpr int kFirstStandIn = 0x100;

bool stands_for_itself(int byte) {
  return (byte >= 0x21 && byte <= 0x7E) || (byte >= 0xA1 && byte <= 0xAC) || byte >= 0xAE;
}

/// The character (below U+0180) of each byte.
std::array<int, 256> characters() {
  std::array<int, 256> of{};
  int stand_in = kFirstStandIn;
  for (int byte = 0; byte < 256; ++byte) {
    of[static_cast<std::size_t>(byte)] = stands_for_itself(byte) ? byte : stand_in++;
  }
  return of;
}

const std::array<int, 256>& character_of_byte() {
  static const auto table = characters();
  return table;
}

/// The byte of each character below U+0180, or -1.
const std::array<int, 0x180>& byte_of_character() {
  static const auto table = [] {
    std::array<int, 0x180> of{};
    of.fill(-1);
    for (int byte = 0; byte < 256; ++byte) {
      of[static_cast<std::size_t>(character_of_byte()[static_cast<std::size_t>(byte)])] = byte;
    }
    return of;
  }();
  return table;
}

}  // namespace

std::string to_visible(std::string_view bytes) {
  std::string text;
  for (const char byte : bytes) {
    const int character = character_of_byte()[static_cast<unsigned char>(byte)];
    if (character < 0x80) {
      text.push_back(static_cast<char>(character));
    } else {
      text.push_back(static_cast<char>(0xC0 | (character >> 6)));
      text.push_back(static_cast<char>(0x80 | (character & 0x3F)));
    }
  }
  return text;
}

std::optional<std::string> from_visible(std::string_view visible) {
  std::string bytes;
  for (std::size_t i = 0; i < visible.size(); ++i) {
    int character = static_cast<unsigned char>(visible[i]);
    if (character >= 0x80) {
      if (character > 0xDF || i + 1 == visible.size()) return std::nullopt;
      character = ((character & 0x1F) << 6) | (static_cast<unsigned char>(visible[++i]) & 0x3F);
    }
    const int byte = character < 0x180 ? byte_of_character()[static_cast<std::size_t>(character)] : -1;
    if (byte < 0) return std::nullopt;
    bytes.push_back(static_cast<char>(byte));
  }
  return bytes;
}

}  // namespace kozero::io
