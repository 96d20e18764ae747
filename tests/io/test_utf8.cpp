// SPDX-FileCopyrightText: The KoZeRO authors
// SPDX-License-Identifier: Apache-2.0
// test_utf8.cpp: well-formed and ill-formed UTF-8, and GPT-2's byte alphabet.
#include <catch2/catch_test_macros.hpp>

#include <string>

#include "io/posix/readable.hpp"
#include "io/text/pretokenizer.hpp"

namespace kozero::io {

namespace {

std::string encoded(unsigned code) {
  const auto tail = [&](unsigned shift) { return static_cast<char>(0x80U | ((code >> shift) & 0x3FU)); };
  if (code < 0x80) return {static_cast<char>(code)};
  if (code < 0x800) return {static_cast<char>(0xC0U | (code >> 6U)), tail(0)};
  if (code < 0x10000) return {static_cast<char>(0xE0U | (code >> 12U)), tail(6), tail(0)};
  return {static_cast<char>(0xF0U | (code >> 18U)), tail(12), tail(6), tail(0)};
}

}  // namespace

TEST_CASE("exactly the Unicode scalar values are well-formed UTF-8") {
  for (unsigned code = 0; code < 0x110400; ++code) {
    const bool scalar = code < 0xD800 || (code > 0xDFFF && code < 0x110000);
    const std::string bytes = encoded(code);
    if (utf8_character(bytes) != (scalar ? bytes.size() : 0)) FAIL("code point " << code);
  }
  for (const char* bad :
       {"\x80", "\xC0\x80", "\xC1\xBF", "\xE0\x9F\xBF", "\xF0\x8F\xBF\xBF", "\xF5\x80\x80\x80", "\xC3(", "\xE4\xBD("}) {
    CHECK(utf8_character(bad) == 0);
  }
  CHECK(utf8_character("") == 0);
}

TEST_CASE("the well-formed prefix ends at the first bad byte") {
  for (std::size_t length = 0; length < 40; ++length) {
    const std::string good = std::string(length, 'x') + "\xC3\xA9";
    CHECK(utf8_prefix(good) == good.size());
    CHECK(utf8_prefix(good + "\xFFtail") == good.size());
    CHECK(utf8_prefix(std::string(length, 'x') + "\xC3") == length);
  }
}

TEST_CASE("any bytes are printable as well-formed text without control characters") {
  const std::string replaced = "\xEF\xBF\xBD";
  CHECK(printable("caf\xC3\xA9\ta\nb") == "caf\xC3\xA9\ta\nb");
  CHECK(printable("\x1B[2J\r\x7F") == "\\x1b[2J\\x0d\\x7f");
  CHECK(printable(std::string(1, '\0')) == "\\x00");
  CHECK(printable("\xC2\x85 \xC2\xA0") == "\\u0085 \xC2\xA0");
  CHECK(printable("a\xFF\xFE z") == "a" + replaced + replaced + " z");
  // Maximal subparts, as in table 3-8 of the Unicode standard.
  CHECK(printable("\xE4\xBD") == replaced);
  CHECK(printable("\xF0\x9F\x98(") == replaced + "(");
  CHECK(printable("\xE0\x80\x80") == replaced + replaced + replaced);
}

TEST_CASE("GPT-2's byte alphabet is a bijection") {
  std::string all;
  for (int byte = 0; byte < 256; ++byte) all.push_back(static_cast<char>(byte));
  CHECK(from_visible(to_visible(all)) == all);
  CHECK(to_visible(" \n") == "\xC4\xA0\xC4\x8A");
  CHECK(to_visible("aZ~") == "aZ~");
  CHECK(!from_visible(" "));
  CHECK(!from_visible("\xE4\xBD\xA0"));
  CHECK(!from_visible("\xC4"));
}

}  // namespace kozero::io
