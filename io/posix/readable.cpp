// SPDX-FileCopyrightText: The KoZeRO authors
// SPDX-License-Identifier: Apache-2.0
// readable.cpp: decoding of UTF-8, eight ASCII bytes at a time, and the formats of numbers and excerpts.
#include <fmt/format.h>
#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <nlohmann/json.hpp>
#include <string_view>

#include <kozero/core/error.hpp>
#include "io/posix/readable.hpp"

namespace kozero::io {

namespace {

/// For each lead byte: the length, and the accepted range of the second byte (Unicode standard, table 3-7). Later bytes
/// are always 80..BF.
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

/// Whether eight bytes are all ASCII.
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

struct Unit {
  std::string_view name;
  double factor;
};

/// A finite number >= 0 followed by one of the units; nullopt for other text.
template <std::size_t N>
std::optional<double> amount(std::string_view text, const std::array<Unit, N>& units) {
  double number = 0;
  const auto [end, problem] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (problem != std::errc() || !std::isfinite(number) || number < 0) return std::nullopt;
  text.remove_prefix(static_cast<std::size_t>(end - text.data()));
  if (text.starts_with(' ')) text.remove_prefix(1);
  const auto unit = std::find_if(units.begin(), units.end(), [&](const Unit& each) { return each.name == text; });
  return unit == units.end() ? std::nullopt : std::optional(number * unit->factor);
}

/// Bytes of the white space at the front of the text, one character as Python's str.isspace() has them; 0 for none.
std::size_t space_at(std::string_view text) {
  constexpr std::array<std::string_view, 29> kSpaces = {
      "\t",     "\n",     "\v",     "\f",     "\r",     "\x1c",   "\x1d",   "\x1e",   "\x1f",   " ",
      "\u0085", "\u00a0", "\u1680", "\u2000", "\u2001", "\u2002", "\u2003", "\u2004", "\u2005", "\u2006",
      "\u2007", "\u2008", "\u2009", "\u200a", "\u2028", "\u2029", "\u202f", "\u205f", "\u3000"};
  const auto* const found = std::ranges::find_if(kSpaces, [&](const auto& space) { return text.starts_with(space); });
  return found == kSpaces.end() ? 0 : found->size();
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
    result += character == "\n" || character == "\t" ? std::string(character) : escaped(character);
    text.remove_prefix(length);
  }
  return result;
}

std::string printable_line(std::string_view text) {
  std::string line;
  for (const char letter : printable(text)) line += letter == '\n' ? "\\n" : std::string(1, letter);
  return line;
}

std::string readable_bytes(std::int64_t bytes) {
  constexpr std::array<std::string_view, 5> kUnits = {"B", "KiB", "MiB", "GiB", "TiB"};
  auto value = static_cast<double>(bytes);
  std::size_t unit = 0;
  while (std::abs(value) >= 1023.95 && unit + 1 < kUnits.size()) {
    value /= 1024.0;
    ++unit;
  }
  return unit == 0 ? fmt::format("{} B", bytes) : fmt::format("{:.1f} {}", value, kUnits[unit]);
}

std::string readable_count(double count) {
  constexpr std::array<std::string_view, 5> kUnits = {"", " k", " M", " G", " T"};
  std::size_t unit = 0;
  while (std::abs(count) >= 999.5 && unit + 1 < kUnits.size()) {
    count /= 1000.0;
    ++unit;
  }
  const int decimals = unit == 0 || count >= 99.95 ? 0 : count >= 9.995 ? 1 : 2;
  return fmt::format("{:.{}f}{}", count, decimals, kUnits[unit]);
}

std::string grouped_digits(std::int64_t count) {
  std::string digits = std::to_string(count);
  const std::size_t sign = count < 0 ? 1 : 0;
  for (std::size_t end = digits.size(); end > sign + 3; end -= 3) digits.insert(end - 3, ",");
  return digits;
}

std::string readable_seconds(double seconds) {
  if (!std::isfinite(seconds) || seconds < 0.0) return "?";
  const auto whole = static_cast<std::int64_t>(std::llround(seconds));
  if (whole < 60) return fmt::format("{} s", whole);
  if (whole < 3600) return fmt::format("{} min {:02} s", whole / 60, whole % 60);
  return fmt::format("{} h {:02} min", whole / 3600, whole % 3600 / 60);
}

std::optional<double> bytes_of_text(std::string_view text) {
  static constexpr std::array kUnits = {Unit{"B", 1},        Unit{"KiB", 0x1p10}, Unit{"MiB", 0x1p20},
                                        Unit{"GiB", 0x1p30}, Unit{"TiB", 0x1p40}, Unit{"KB", 1e3},
                                        Unit{"MB", 1e6},     Unit{"GB", 1e9},     Unit{"TB", 1e12}};
  return amount(text, kUnits);
}

std::optional<double> seconds_of_text(std::string_view text) {
  static constexpr std::array kUnits = {Unit{"s", 1}, Unit{"min", 60}, Unit{"h", 3600}, Unit{"d", 86400}};
  return amount(text, kUnits);
}

std::string on_one_line(std::string text) {
  std::replace_if(
      text.begin(), text.end(), [](unsigned char c) { return c < ' ' || c == 0x7F; }, ' ');
  return text;
}

std::string json_excerpt(const nlohmann::json& value) {
  constexpr std::size_t kShown = 80;
  std::string all = value.dump(-1, ' ', true);
  if (all.size() > kShown) all.replace(kShown, std::string::npos, "...");
  return all;
}

std::string_view stripped_at_end(std::string_view text) {
  constexpr std::size_t kMostBytes = 3;  // of a white space
  for (std::size_t bytes = 1; bytes <= std::min(kMostBytes, text.size());) {
    const bool is_space = space_at(text.substr(text.size() - bytes)) == bytes;
    if (is_space) text.remove_suffix(bytes);
    bytes = is_space ? 1 : bytes + 1;
  }
  return text;
}

std::string_view stripped(std::string_view text) {
  while (const std::size_t space = space_at(text)) text.remove_prefix(space);
  return stripped_at_end(text);
}

}  // namespace kozero::io
