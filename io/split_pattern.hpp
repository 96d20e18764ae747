// SPDX-FileCopyrightText: The KoZeRO authors
// SPDX-License-Identifier: Apache-2.0
// split_pattern.hpp: text cut into the pieces inside which byte-level BPE merges: a regular expression (PCRE2, Unicode
// classes), applied from left to right. Every byte is in exactly one piece: what the expression does not match, and
// each run of bytes that are not UTF-8, is a piece of its own.
//   PieceSplitter splitter(pattern, text);  for (std::string_view piece; splitter.next(piece);) ...
#pragma once
#include <array>
#include <memory>
#include <string>
#include <string_view>

namespace kozero::io {

/// GPT-2's expression: contractions, letters, digits, other marks, each with one leading blank, and white space.
/// Radford et al. 2019, encoder.py.
extern const char* const kGpt2Split;

/// The expressions that published tokenizers split with. PCRE2 cuts with them as Oniguruma does, which they were
/// written for; of an expression at large that is not so.
struct PublishedSplit {
  const char* name;
  const char* expression;
};
extern const std::array<PublishedSplit, 4> kPublishedSplits;

class SplitPattern {
 public:
  /// Throws Error(input) with PCRE2's message and the offset where the expression is malformed.
  explicit SplitPattern(const std::string& expression);
  ~SplitPattern();
  SplitPattern(SplitPattern&&) noexcept;
  SplitPattern& operator=(SplitPattern&&) noexcept;

  /// The first match in well-formed UTF-8 `text` at or after `start`, as [begin, end); end <= begin where there is
  /// none.
  struct Range {
    std::size_t begin, end;
  };
  [[nodiscard]] Range find(std::string_view text, std::size_t start) const;

 private:
  struct Compiled;
  std::unique_ptr<Compiled> compiled_;
};

class PieceSplitter {
 public:
  PieceSplitter(const SplitPattern& pattern, std::string_view text) : pattern_(pattern), text_(text) {}
  /// The next piece; false at the end of the text.
  bool next(std::string_view& piece);

 private:
  std::size_t end_of_piece();

  const SplitPattern& pattern_;
  std::string_view text_;
  std::size_t position_ = 0;
  std::size_t valid_end_ = 0;  ///< [position_, valid_end_) is well-formed UTF-8
};

}  // namespace kozero::io
