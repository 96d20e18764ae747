// SPDX-FileCopyrightText: The KoZeRO authors
// SPDX-License-Identifier: Apache-2.0
// streamed_text.hpp: generated tokens as text that can be shown while it comes.
//   ReadableText    bytes -> whole UTF-8 characters; U+FFFD for what is none (one for each maximal part, Unicode 15,
//                   section 3.9); control characters other than newline and tab as \x1b, those from U+0080 on as \u009b
//   StreamedText    tokens -> the bytes that each adds to the text of those before, through a ReadableText
// Both hold back what the next bytes may complete, and give it at finish().
#pragma once
#include <string>
#include <string_view>
#include <vector>

#include <kozero/io/tokenizer.hpp>

namespace kozero::io {

class ReadableText {
 public:
  enum class Controls { escaped, kept };
  explicit ReadableText(Controls controls = Controls::escaped) : controls_(controls) {}

  /// What can be shown of the bytes so far and was not before.
  std::string add(std::string_view bytes);
  /// What add held back.
  std::string finish();

 private:
  std::string taken(bool is_end);

  Controls controls_;
  std::string held_;
};

class StreamedText {
 public:
  /// Goes on from `prompt`, whose tokens are `before`. `tokenizer` outlives it.
  StreamedText(const Tokenizer& tokenizer, const std::vector<Token>& before, ReadableText::Controls controls);

  std::string add_text(std::string_view bytes) { return readable_.add(bytes); }
  std::string add(Token token);
  std::string finish();

 private:
  const Tokenizer& tokenizer_;
  ReadableText readable_;
  std::vector<Token> window_;  // tokens whose text depends on each other: a blank between words, the bytes of a character
  std::size_t shown_ = 0;      // bytes of the window's text
};

}  // namespace kozero::io
