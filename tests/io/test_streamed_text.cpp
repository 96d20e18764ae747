// SPDX-FileCopyrightText: The KoZeRO authors
// SPDX-License-Identifier: Apache-2.0
// test_streamed_text.cpp: bytes and tokens that arrive one by one, as text of whole characters at any time.
#include <catch2/catch_test_macros.hpp>

#include <string>

#include "io/posix/readable.hpp"
#include "io/text/tokenizer.hpp"

namespace kozero::io {

namespace {

/// The text shown for bytes given one at a time; every part of it is well-formed UTF-8.
std::string shown_one_by_one(const std::string& bytes) {
  ReadableText readable;
  std::string shown;
  for (const char byte : bytes) {
    const std::string part = readable.add(std::string(1, byte));
    CHECK(utf8_prefix(part) == part.size());
    shown += part;
  }
  return shown + readable.finish();
}

std::string streamed(const Tokenizer& tokenizer, const std::string& prompt, const std::string& text) {
  const auto before = tokenizer.encode(prompt);
  const auto all = tokenizer.encode(prompt + text);
  REQUIRE(std::equal(before.begin(), before.end(), all.begin()));
  StreamedText stream(tokenizer, before, ReadableText::Controls::kept);
  std::string shown;
  for (std::size_t i = before.size(); i < all.size(); ++i) shown += stream.add(all[i]);
  return shown + stream.finish();
}

}  // namespace

TEST_CASE("whole characters are shown as they are, once their last byte is there") {
  const std::string text = "a\xC3\xA9\xE2\x82\xAC\xF0\x9F\x98\x80z";
  CHECK(shown_one_by_one(text) == text);
  ReadableText readable;
  CHECK(readable.add("\xF0\x9F\x98").empty());
  CHECK(readable.add("\x80!") == "\xF0\x9F\x98\x80!");
}

TEST_CASE("each maximal part of no character is one U+FFFD") {
  const std::string mark = "\xEF\xBF\xBD";
  CHECK(shown_one_by_one("\xFF"
                         "a") == mark + "a");
  CHECK(shown_one_by_one("\xE2\x82"
                         "a") == mark + "a");
  CHECK(shown_one_by_one("\xE2\x82\xE2\x82\xAC") == mark + "\xE2\x82\xAC");
  CHECK(shown_one_by_one("\xED\xA0\x80") == mark + mark + mark);  // a surrogate
  CHECK(shown_one_by_one("x\xF0\x9F") == "x" + mark);             // cut off at the end
  CHECK(shown_one_by_one("\x80\xBF") == mark + mark);
}

TEST_CASE("control characters are escaped, line ends and tabs are not") {
  CHECK(shown_one_by_one("a\tb\n") == "a\tb\n");
  CHECK(shown_one_by_one(std::string("\x1B[2J\r\x07\x7F\0", 8)) == "\\x1b[2J\\x0d\\x07\\x7f\\x00");
  CHECK(shown_one_by_one("\xC2\x9B") == "\\u009b");
  CHECK(ReadableText(ReadableText::Controls::kept).add("\x1B\r") == "\x1B\r");
}

TEST_CASE("tokens that come one by one give the text that they give together") {
  const std::string folder = KOZERO_TOKENIZERS;
  const std::string text =
      " caf\xC3\xA9 \xE2\x82\xAC"
      "5  and \xF0\x9F\x98\x80 or \xE6\xBC\xA2\xE5\xAD\x97 more words";
  for (const std::string file : {"gpt2.json", "qwen.json", "llama3.json"}) {
    const auto tokenizer = make_tokenizer(folder + "/" + file);
    INFO(file);
    ReadableText whole(ReadableText::Controls::kept);  // the tests' vocabularies lack some bytes
    const std::string expected = whole.add(tokenizer->decode(tokenizer->encode("Once upon" + text))) + whole.finish();
    CHECK("Once upon" + streamed(*tokenizer, "Once upon", text) == expected);
  }
  CHECK(streamed(*make_tokenizer("bytes"), "Once", text) == text);
  for (const std::string file : {"bpe.model", "unigram.model"}) {
    const auto tokenizer = make_tokenizer(folder + "/" + file);
    const std::string whole = tokenizer->decode(tokenizer->encode("Once upon" + text));
    CHECK("Once upon" + streamed(*tokenizer, "Once upon", text) == whole);
  }
}

TEST_CASE("text ends with the tokens that published models end it with") {
  const std::string folder = KOZERO_TOKENIZERS;
  const auto gpt2 = make_tokenizer(folder + "/gpt2.json");
  CHECK(gpt2->ends_text(gpt2->end_of_text()));
  CHECK_FALSE(gpt2->ends_text(5));
  CHECK_FALSE(gpt2->ends_text(-1));
  const auto llama = make_tokenizer(folder + "/llama3.json");
  const auto closing = llama->encode("<|end_of_text|>");
  REQUIRE(closing.size() == 1);
  CHECK(llama->ends_text(closing[0]));
  CHECK(llama->ends_text(llama->end_of_text()));
  CHECK(make_tokenizer("bytes")->ends_text(0));
}

}  // namespace kozero::io
