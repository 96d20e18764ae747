// SPDX-FileCopyrightText: The KoZeRO authors
// SPDX-License-Identifier: Apache-2.0
// normal_form.cpp: Unicode normalization form C by utf8proc, which is called only for text that may change.
#include <utf8proc.h>
#include <algorithm>
#include <array>
#include <bitset>
#include <cstdlib>
#include <memory>

#include <kozero/core/error.hpp>
#include "io/posix/readable.hpp"
#include "io/text/character_classes.hpp"
#include "io/text/pretokenizer.hpp"

namespace kozero::io {

namespace {

/// The lead byte of U+0300, the first combining mark. Characters below it are in form C already.
constexpr unsigned char kFirstLead = 0xCC;

bool may_change(char byte) { return static_cast<unsigned char>(byte) >= kFirstLead; }
bool is_ascii(char byte) { return static_cast<unsigned char>(byte) < 0x80; }

/// Appends well-formed UTF-8 in form C.
void append_composed(std::string_view text, std::string& out) {
  utf8proc_uint8_t* composed = nullptr;
  const auto size =
      utf8proc_map(reinterpret_cast<const utf8proc_uint8_t*>(text.data()), static_cast<utf8proc_ssize_t>(text.size()),
                   &composed, static_cast<utf8proc_option_t>(UTF8PROC_STABLE | UTF8PROC_COMPOSE));
  const std::unique_ptr<utf8proc_uint8_t, decltype(&std::free)> owner(composed, &std::free);
  require(size >= 0, std::string("to_nfc: ") + utf8proc_errmsg(size));
  out.append(reinterpret_cast<const char*>(composed), static_cast<std::size_t>(size));
}

struct Range {
  std::int32_t first, last;
};

/// Marks of Unicode 10 to 15 that have a combining class or compose.
constexpr std::array<Range, 38> kLaterMarks = {
    {{0x7FD, 0x7FD},     {0x898, 0x89F},     {0x8CA, 0x8D3},     {0x9FE, 0x9FE},     {0xC3C, 0xC3C},
     {0xD3B, 0xD3C},     {0xEBA, 0xEBA},     {0x1715, 0x1715},   {0x1ABF, 0x1ACE},   {0x1DF6, 0x1DFA},
     {0xA82C, 0xA82C},   {0x10D24, 0x10D27}, {0x10EAB, 0x10EAC}, {0x10EFD, 0x10EFF}, {0x10F46, 0x10F50},
     {0x10F82, 0x10F85}, {0x11070, 0x11070}, {0x1133B, 0x1133B}, {0x1145E, 0x1145E}, {0x11839, 0x1183A},
     {0x11930, 0x11930}, {0x11938, 0x11938}, {0x1193D, 0x1193E}, {0x11943, 0x11943}, {0x119E0, 0x119E0},
     {0x11A34, 0x11A34}, {0x11A47, 0x11A47}, {0x11A99, 0x11A99}, {0x11D42, 0x11D42}, {0x11D44, 0x11D45},
     {0x11D97, 0x11D97}, {0x11F41, 0x11F42}, {0x16FF0, 0x16FF1}, {0x1E08F, 0x1E08F}, {0x1E130, 0x1E136},
     {0x1E2AE, 0x1E2AE}, {0x1E2EC, 0x1E2EF}, {0x1E4EC, 0x1E4EF}}};

bool is_later_mark(std::string_view character) {
  if (character.size() < 2) return false;
  std::int32_t code = 0;
  utf8proc_iterate(reinterpret_cast<const utf8proc_uint8_t*>(character.data()),
                   static_cast<utf8proc_ssize_t>(character.size()), &code);
  const auto range =
      std::partition_point(kLaterMarks.begin(), kLaterMarks.end(), [&](const Range& r) { return r.last < code; });
  return range != kLaterMarks.end() && range->first <= code;
}

/// Appends bytes in form C, except later marks and bytes that are not UTF-8, which are appended unchanged.
void append_stretch(std::string_view text, std::string& out) {
  std::size_t end = 0;
  while (end < text.size()) {
    const std::size_t character = utf8_character(text.substr(end));
    if (character > 0 && !is_later_mark(text.substr(end, character))) {
      end += character;
      continue;
    }
    const std::size_t kept = std::max<std::size_t>(character, 1);
    if (end > 0) append_composed(text.substr(0, end), out);
    out.append(text.substr(end, kept));
    text.remove_prefix(end + kept);
    end = 0;
  }
  if (end > 0) append_composed(text, out);
}

constexpr std::int32_t kNumTabled = 0x40000;
using Characters = std::bitset<kNumTabled>;

/// The canonical decomposition of a character, at most four characters in Unicode.
std::u32string decomposed(std::int32_t code) {
  std::array<utf8proc_int32_t, 8> buffer{};
  int boundary = 0;
  const auto size = utf8proc_decompose_char(code, buffer.data(), buffer.size(), UTF8PROC_DECOMPOSE, &boundary);
  require(size >= 0 && size <= std::ssize(buffer), "to_nfc: a long decomposition");
  return {buffer.begin(), buffer.begin() + size};
}

/// Whether a character alone is in form C.
bool is_composed(std::int32_t code, const std::u32string& parts) {
  if (parts.size() == 1) return static_cast<std::int32_t>(parts[0]) == code;
  std::array<utf8proc_uint8_t, 4> bytes{};
  const auto size = static_cast<std::size_t>(utf8proc_encode_char(code, bytes.data()));
  const std::string_view text(reinterpret_cast<const char*>(bytes.data()), size);
  std::string form;
  append_composed(text, form);
  return form == text;
}

/// Characters that form C never changes beside each other: starters that are in form C and compose with no character
/// before them.
std::unique_ptr<const Characters> find_steady_characters() {
  auto steady = std::make_unique<Characters>();
  Characters later_parts;  // of a decomposition
  for (std::int32_t code = 0; code < kNumTabled; ++code) {
    if (!utf8proc_codepoint_valid(code)) continue;
    const auto parts = decomposed(code);
    for (std::size_t i = 1; i < parts.size(); ++i) later_parts.set(parts[i]);
    const bool is_starter = utf8proc_get_property(code)->combining_class == 0;
    steady->set(static_cast<std::size_t>(code), is_starter && is_composed(code, parts));
  }
  *steady &= ~later_parts;
  return steady;
}

/// Whether the text, which has no ASCII, is UTF-8 of such characters only.
bool is_steady(std::string_view text) {
  static const auto steady = find_steady_characters();
  while (!text.empty()) {
    const auto [code, num_bytes] = decode_character(text);
    if (num_bytes == 0 || code >= kNumTabled || !(*steady)[code]) return false;
    text.remove_prefix(num_bytes);
  }
  return true;
}

}  // namespace

std::string to_nfc(std::string_view text) {
  std::string out;
  out.reserve(text.size());
  for (auto rest = text.begin(); rest != text.end();) {
    const auto first = std::find_if(rest, text.end(), may_change);
    // A stretch starts after an ASCII character; only if it changes, with it, since marks compose with it.
    auto begin = first;
    while (begin != rest && !is_ascii(*(begin - 1))) --begin;
    const auto end = std::find_if(first, text.end(), is_ascii);
    if (is_steady(std::string_view(begin, end))) {
      out.append(rest, end);
    } else {
      if (begin != rest) --begin;
      out.append(rest, begin);
      append_stretch(std::string_view(begin, end), out);
    }
    rest = end;
  }
  return out;
}

}  // namespace kozero::io
