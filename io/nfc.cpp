// SPDX-FileCopyrightText: The KoZeRO authors
// SPDX-License-Identifier: Apache-2.0
#include <utf8proc.h>

#include <algorithm>
#include <cstdlib>
#include <memory>

#include <kozero/core/error.hpp>
#include <kozero/io/nfc.hpp>
#include <kozero/io/utf8.hpp>

namespace kozero::io {

namespace {

/// The lead byte of U+0300: everything below is in form C, and ASCII never joins what stands before it.
constexpr unsigned char kFirstLead = 0xCC;

bool may_change(char byte) { return static_cast<unsigned char>(byte) >= kFirstLead; }
bool is_ascii(char byte) { return static_cast<unsigned char>(byte) < 0x80; }

/// Appends well-formed UTF-8 in form C.
void append_composed(std::string_view text, std::string& out) {
  utf8proc_uint8_t* composed = nullptr;
  const auto size = utf8proc_map(reinterpret_cast<const utf8proc_uint8_t*>(text.data()),
                                 static_cast<utf8proc_ssize_t>(text.size()), &composed,
                                 static_cast<utf8proc_option_t>(UTF8PROC_STABLE | UTF8PROC_COMPOSE));
  const std::unique_ptr<utf8proc_uint8_t, decltype(&std::free)> owner(composed, &std::free);
  require(size >= 0, std::string("to_nfc: ") + utf8proc_errmsg(size));
  out.append(reinterpret_cast<const char*>(composed), static_cast<std::size_t>(size));
}

/// Appends any bytes, the well-formed stretches in form C.
void append_stretch(std::string_view text, std::string& out) {
  while (!text.empty()) {
    const std::size_t valid = utf8_prefix(text);
    if (valid > 0) append_composed(text.substr(0, valid), out);
    text.remove_prefix(valid);
    if (text.empty()) return;
    out.push_back(text.front());
    text.remove_prefix(1);
  }
}

}  // namespace

std::string to_nfc(std::string_view text) {
  std::string out;
  out.reserve(text.size());
  for (auto rest = text.begin(); rest != text.end();) {
    auto first = std::find_if(rest, text.end(), may_change);
    if (first != text.end() && first != rest) {  // with the character that it may join
      for (--first; first != rest && !is_ascii(*first);) --first;
    }
    out.append(rest, first);
    auto end = first == text.end() ? first : std::find_if(first + 1, text.end(), is_ascii);
    append_stretch(std::string_view(first, end), out);
    rest = end;
  }
  return out;
}

}  // namespace kozero::io
