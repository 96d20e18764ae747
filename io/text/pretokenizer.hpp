// SPDX-FileCopyrightText: The KoZeRO authors
// SPDX-License-Identifier: Apache-2.0
// pretokenizer.hpp: the steps of byte-level BPE before the merges.
//    text -> Unicode normalization form C -> pretokens (split pattern) -> bytes as visible characters
// Every byte of the text is in exactly one pretoken.
#pragma once
#include <array>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

namespace kozero::io {

/// The text in Unicode normalization form C (canonical composition), which Qwen's tokenizers use.
///   "e" U+0301  ->  U+00E9            text that is already composed, such as ASCII and Latin-1, does not change
/// Bytes that are not UTF-8 are kept, and nothing composes across them. Follows Hugging Face's tokenizers, whose tables
/// are those of Unicode 9: marks that were added later keep their position. Unicode Standard Annex 15; by utf8proc.
std::string to_nfc(std::string_view text);

/// GPT-2's expression: contractions, letters, digits, other marks, each with one leading blank, and white space.
/// Radford et al. 2019, encoder.py.
extern const char* const kGpt2Split;

/// The split pattern of a published tokenizer. These expressions were written for Oniguruma. PCRE2 gives the same
/// pretokens for them, but may not for other expressions.
struct PublishedSplit {
  const char* name;
  const char* expression;
  bool nfc = false;  ///< text is in normalization form C before it is split
};
extern const std::array<PublishedSplit, 4> kPublishedSplits;

/// The split with this name; "": GPT-2's. Throws Error(internal) for an unknown name.
const PublishedSplit& published_split(const std::string& name);

/// A regular expression (PCRE2, Unicode classes).
class SplitPattern {
 public:
  /// Throws Error(input) with PCRE2's message and the offset of the problem if the expression is malformed.
  explicit SplitPattern(const std::string& expression);
  ~SplitPattern();
  SplitPattern(SplitPattern&&) noexcept;
  SplitPattern& operator=(SplitPattern&&) noexcept;

  /// The first match in well-formed UTF-8 `text` at or after `start`, as [begin, end); end <= begin if there is
  /// none.
  struct Range {
    std::size_t begin, end;
  };
  [[nodiscard]] Range find(std::string_view text, std::size_t start) const;

 private:
  struct Compiled;
  std::unique_ptr<Compiled> compiled_;
};

/// Cuts text into pretokens, from left to right; byte-level BPE merges only inside a pretoken. Text that the pattern
/// does not match, and each run of bytes that are not UTF-8, is a pretoken of its own.
///   PretokenSplitter splitter(pattern, text);  for (std::string_view pretoken; splitter.next(pretoken);) ...
class PretokenSplitter {
 public:
  PretokenSplitter(const SplitPattern& pattern, std::string_view text) : pattern_(pattern), text_(text) {}
  /// The next pretoken; false at the end of the text.
  bool next(std::string_view& pretoken);

 private:
  std::size_t end_of_pretoken();

  const SplitPattern& pattern_;
  std::string_view text_;
  std::size_t position_ = 0;
  std::size_t valid_end_ = 0;  ///< [position_, valid_end_) is well-formed UTF-8
};

/// The bytes as visible text in UTF-8, one character per byte, as tokenizer files have them.
///   visible Latin-1 bytes (! to ~, 0xA1-0xAC, 0xAE-0xFF) stay as they are; the k-th other byte becomes U+0100 + k
/// Radford et al. 2019, encoder.py, bytes_to_unicode.
std::string to_visible(std::string_view bytes);

/// The inverse of to_visible; nullopt if `visible` has a character that stands for no byte.
std::optional<std::string> from_visible(std::string_view visible);

}  // namespace kozero::io
