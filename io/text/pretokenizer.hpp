// SPDX-FileCopyrightText: The KoZeRO authors
// SPDX-License-Identifier: Apache-2.0
// pretokenizer.hpp: the steps of byte-level BPE before the merges.
//    text -> Unicode normalization form C -> pretokens (split pattern) -> bytes as visible characters
// Every byte of the text is in exactly one pretoken.
#pragma once
#include <array>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "io/text/pretoken_starts.hpp"

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
  std::optional<SplitRule> rule = {};
};
extern const std::array<PublishedSplit, 4> kPublishedSplits;

/// The split with this name; "": GPT-2's. Throws Error(internal) for an unknown name.
const PublishedSplit& published_split(const std::string& name);

/// The split of a tokenizer: a rule for the published expressions that have one, else a regular expression (PCRE2,
/// Unicode classes). Several threads may use one.
class SplitPattern {
 public:
  /// Throws Error(input) with PCRE2's message and the offset of the problem if the expression is malformed.
  explicit SplitPattern(const std::string& expression);
  ~SplitPattern();
  SplitPattern(SplitPattern&&) noexcept;
  SplitPattern& operator=(SplitPattern&&) noexcept;

 private:
  friend class PretokenSplitter;
  struct Compiled;
  std::optional<SplitRule> rule_;
  std::unique_ptr<Compiled> compiled_;  ///< null with a rule
};

/// Cuts text into pretokens, from left to right; byte-level BPE merges only inside a pretoken. Text that the pattern
/// does not match, and each run of bytes that are not UTF-8, is a pretoken of its own. One object serves one thread.
///   splitter.start(text);  for (auto some = splitter.next(); !some.empty(); some = splitter.next()) ...
class PretokenSplitter {
 public:
  /// `pattern` outlives the object.
  explicit PretokenSplitter(const SplitPattern& pattern);
  ~PretokenSplitter();

  /// `text` stays where it is until the last call of next().
  void start(std::string_view text) {
    rest_ = text;
    num_valid_ = 0;
  }
  /// The next pretokens, valid until the next call; none at the end of the text.
  std::span<const std::string_view> next();

 private:
  struct Match;
  std::span<const std::string_view> next_by_rule();
  std::span<const std::string_view> next_by_expression();
  std::span<const std::string_view> next_not_utf8();
  [[nodiscard]] std::size_t end_of_match(std::string_view text) const;

  const SplitPattern& pattern_;
  std::string_view rest_;
  std::size_t num_valid_ = 0;             ///< bytes of rest_ that are known to be UTF-8, without a rule
  std::optional<PretokenStarts> starts_;  ///< with a rule
  std::unique_ptr<Match> match_;          ///< without
  std::vector<std::string_view> pretokens_;
};

/// The bytes as visible text in UTF-8, one character per byte, as tokenizer files have them.
///   visible Latin-1 bytes (! to ~, 0xA1-0xAC, 0xAE-0xFF) stay as they are; the k-th other byte becomes U+0100 + k
/// Radford et al. 2019, encoder.py, bytes_to_unicode.
std::string to_visible(std::string_view bytes);

/// The inverse of to_visible; nullopt if `visible` has a character that stands for no byte.
std::optional<std::string> from_visible(std::string_view visible);

}  // namespace kozero::io
