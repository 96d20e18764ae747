// SPDX-FileCopyrightText: The KoZeRO authors
// SPDX-License-Identifier: Apache-2.0
// test_pretokenizer.cpp: classes of characters, form C, and the published splits beside the regular expressions that
// they are.
#include <catch2/catch_test_macros.hpp>

#include <utf8proc.h>
#include <array>
#include <cstdlib>
#include <random>
#include <string>
#include <vector>

#include <support/thrown.hpp>
#include "io/text/character_classes.hpp"
#include "io/text/pretokenizer.hpp"

namespace kozero::io {

using namespace tests;

namespace {

using Pretokens = std::vector<std::string>;

Pretokens split(const SplitPattern& pattern, const std::string& text) {
  PretokenSplitter splitter(pattern);
  splitter.start(text);
  Pretokens found;
  for (auto some = splitter.next(); !some.empty(); some = splitter.next())
    found.insert(found.end(), some.begin(), some.end());
  return found;
}

/// A published split and the same expression in a group, which PCRE2 matches.
struct Pair {
  explicit Pair(const PublishedSplit& split)
      : name(split.name), rule(split.expression), expression("(?:" + std::string(split.expression) + ")") {}
  std::string name;
  SplitPattern rule, expression;
};

std::vector<Pair> pairs_with_rules() {
  std::vector<Pair> pairs;
  for (const auto& split : kPublishedSplits) {
    if (split.rule) pairs.emplace_back(split);
  }
  return pairs;
}

void check_same(const Pair& pair, const std::string& text) {
  CAPTURE(pair.name, text);
  const auto found = split(pair.rule, text);
  const auto expected = split(pair.expression, text);
  if (found != expected) CHECK(found == expected);
}

/// Characters of every class, and those with which the patterns treat specially.
const std::vector<std::string> kCharacters = {
    " ",
    " ",
    " ",
    " ",
    "\n",
    "\n",
    "\r",
    "\t",
    "'",
    "'",
    "'",
    "s",
    "t",
    "l",
    "l",
    "v",
    "e",
    "r",
    "m",
    "d",
    "S",
    "L",
    "R",
    "E",
    "a",
    "Z",
    "0",
    "1",
    "9",
    "!",
    "-",
    "_",
    "/",
    "\xC2\xA0",          // no-break space
    "\xE3\x80\x80",      // ideographic space
    "\xC2\x85",          // next line, white space that is no newline of the patterns
    "\xE1\xA0\x8E",      // Mongolian vowel separator, no white space
    "\xC3\xA9",          // e with acute
    "\xE4\xB8\xAD",      // a Chinese character
    "\xC5\xBF",          // long s
    "\xCC\x81",          // combining acute
    "\xC2\xB2",          // superscript two
    "\xD9\xA3",          // Arabic digit three
    "\xF0\x9D\x9F\x98",  // mathematical digit zero
    "\xF0\x9F\x98\x80",  // a face
    "\xF0\x9D\x94\x84"   // Fraktur letter
};

/// Characters at random, and runs of one of them.
std::string random_text(std::mt19937& random, std::size_t num_characters, unsigned longest_run, bool not_utf8) {
  std::string text;
  for (std::size_t i = 0; i < num_characters; ++i) {
    const std::string& character = kCharacters[random() % kCharacters.size()];
    for (unsigned n = 1 + (random() % 8 == 0 ? random() % longest_run : 0); n > 0; --n) text += character;
    if (not_utf8 && random() % 16 == 0) text += random() % 2 == 0 ? "\xE4\xBD" : "\xFF\x80";
  }
  return text;
}

void check_composed(const std::string& text) {
  utf8proc_uint8_t* const whole = utf8proc_NFC(reinterpret_cast<const utf8proc_uint8_t*>(text.c_str()));
  const std::string expected(reinterpret_cast<const char*>(whole));
  std::free(whole);
  CAPTURE(text);
  if (to_nfc(text) != expected) CHECK(to_nfc(text) == expected);
}

}  // namespace

TEST_CASE("classes of characters are those of Unicode") {
  const auto& classes = character_classes();
  for (std::int32_t code = 0; code < 0x110000; ++code) {
    const auto category = utf8proc_category(code);
    if (category == UTF8PROC_CATEGORY_CN) continue;  // a later version may have it
    const bool letter = category >= UTF8PROC_CATEGORY_LU && category <= UTF8PROC_CATEGORY_LO;
    const bool number = category >= UTF8PROC_CATEGORY_ND && category <= UTF8PROC_CATEGORY_NO;
    const auto its = static_cast<std::size_t>(code) < classes.size() ? classes[static_cast<std::size_t>(code)] : 0;
    if (((its & kLetter) != 0) != letter || ((its & kNumber) != 0) != number) FAIL("code point " << code);
    if (category == UTF8PROC_CATEGORY_ZS && (its & kSpace) == 0) FAIL("code point " << code);
  }
  CHECK((classes[0x85] & kSpace) != 0);
  CHECK((classes[0x180E] & kSpace) == 0);
}

TEST_CASE("text is split as GPT-2 splits it") {
  const SplitPattern gpt2(kGpt2Split);
  CHECK(split(gpt2, "Hello world, it's 42!\n\n  x") ==
        Pretokens{"Hello", " world", ",", " it", "'s", " 42", "!", "\n\n ", " x"});
  CHECK(split(gpt2, "a  ") == Pretokens{"a", "  "});
  CHECK(split(gpt2, "\xC3\xA9t\xC3\xA9\xFF\xFE ok") == Pretokens{"\xC3\xA9t\xC3\xA9", "\xFF\xFE", " ok"});
  CHECK(split(gpt2, "").empty());
}

TEST_CASE("text is split as Llama 3 and Qwen split it") {
  const std::string text = "We'Re at\t(x) 12345\r\n \n  !done!\n\n";
  CHECK(split(SplitPattern(published_split("Llama 3").expression), text) ==
        Pretokens{"We", "'Re", " at", "\t", "(x", ")", " ", "123", "45", "\r\n \n", " ", " !", "done", "!\n\n"});
  CHECK(split(SplitPattern(published_split("Qwen 2 and 3").expression), "x 12") == Pretokens{"x", " ", "1", "2"});
}

TEST_CASE("every published split with a rule is its regular expression") {
  std::mt19937 random(3);
  for (const Pair& pair : pairs_with_rules()) {
    for (int i = 0; i < 20000; ++i) check_same(pair, random_text(random, random() % 24, 8, i % 4 == 0));
    for (int i = 0; i < 100; ++i) check_same(pair, random_text(random, 2000, 200, i % 4 == 0));
  }
}

TEST_CASE("pretokens do not depend on where the windows of the splitter end") {
  std::mt19937 random(4);
  for (const Pair& pair : pairs_with_rules()) {
    for (std::size_t size = 8120; size < 8200; ++size) {  // around the window's 8192 bytes
      check_same(pair, std::string(size, 'a') + "-'llama o'vert 'S! 1234567 \t\n\n  \n x");
    }
    for (int i = 0; i < 30; ++i) check_same(pair, random_text(random, 5000, 3000, false));
    for (const std::string& character : kCharacters) {
      std::string run;
      while (run.size() < 40000) run += character;
      check_same(pair, "a " + run + "\n b");
    }
  }
}

TEST_CASE("text is in form C as when utf8proc composes all of it") {
  const std::vector<std::string> characters = {"a",
                                               "e",
                                               " ",
                                               "\xC3\xA9",
                                               "\xC2\xBD",
                                               "\xCC\x81",
                                               "\xCC\xA7",
                                               "\xCD\x84",  // marks: U+0301, U+0327, U+0344
                                               "\xE1\x84\x80",
                                               "\xE1\x85\xA1",
                                               "\xE1\x86\xA8",
                                               "\xEA\xB0\x80",  // Hangul: jamo L, V, T; LV
                                               "\xE2\x84\xAB",
                                               "\xEF\xA4\x80",
                                               "\xE4\xB8\xAD",
                                               "\xE0\xA7\x87",
                                               "\xE0\xA6\xBE",
                                               "\xE1\xBA\x9B",
                                               "\xF0\x9D\x85\x9E",
                                               "\xF0\x9F\x98\x80",
                                               "\xD9\xB1"};
  std::mt19937 random(9);
  for (int i = 0; i < 20000; ++i) {
    std::string text;
    for (unsigned n = random() % 12; n > 0; --n) text += characters[random() % characters.size()];
    check_composed(text);
  }
  for (std::int32_t code = 0x80; code < 0x7FD; ++code) {  // after a letter, and before a mark
    std::array<utf8proc_uint8_t, 4> bytes{};
    const auto size = static_cast<std::size_t>(utf8proc_encode_char(code, bytes.data()));
    check_composed("e" + std::string(reinterpret_cast<const char*>(bytes.data()), size) + "\xCC\x81 ");
  }
}

TEST_CASE("a malformed split pattern is named") {
  const auto error = thrown_by([] { SplitPattern("a(b"); });
  CHECK(error.status == 3);
  CHECK(error.text == "split pattern: missing closing parenthesis at offset 3");
}

}  // namespace kozero::io
