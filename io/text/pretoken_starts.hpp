// SPDX-FileCopyrightText: The KoZeRO authors
// SPDX-License-Identifier: Apache-2.0
// pretoken_starts.hpp: the published split patterns without a regular-expression engine.
// A window of text becomes one bit per character and class (planes), and the characters at which pretokens start are
// found 64 at a time by operations on those bits. Example, GPT-2:
//    text      it's   42 ok
//    letter    11.1......11
//    space     ....111..1..
//    starts    1.1.1.1..1..        "it" "'s" "  " " 42" " ok"
// A regular expression that looks ahead only, as all of them do, matches from the start of a pretoken without regard to
// the text before it. So a window may begin at any start of a pretoken.
#pragma once
#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

namespace kozero::io {

/// The patterns in kPublishedSplits that this file has: GPT-2's, Llama 3's (numbers of up to three digits), and that of
/// Qwen 2 and 3 (each digit alone).
enum class SplitRule : std::uint8_t { gpt2, llama3, qwen2 };

class PretokenStarts {
 public:
  explicit PretokenStarts(SplitRule rule) : rule_(rule) {}

  /// The pretokens at the front of `text`, in order: those of the first `window` bytes, up to the first bytes that are
  /// not UTF-8. If text after the window may change the last of them, they are left out; those may be all. The result
  /// is valid until the next call.
  std::span<const std::string_view> cut(std::string_view text, std::size_t window);

  /// Whether the last call of cut() reached the end of the text, or bytes that are no UTF-8.
  [[nodiscard]] bool reached_end() const { return reached_end_; }

 private:
  /// 64 characters, one bit each.
  struct Planes {
    std::uint64_t letter = 0, number = 0, space = 0, blank = 0, newline = 0, apostrophe = 0, present = 0;
    std::uint64_t starts = 0;
    std::uint64_t open_newline = 0;  ///< newlines that do not belong to other characters before them

    [[nodiscard]] std::uint64_t other() const { return present & ~(letter | number | space); }
    [[nodiscard]] std::uint64_t visible() const { return present & ~space; }
  };

  void read_characters(std::string_view text, std::size_t window);
  void read_block(std::string_view text, std::size_t end);
  void make_planes();
  void mark_gpt2();
  void mark_llama3();
  void mark_tails();
  void mark_contractions(std::string_view text);
  void set_start(std::size_t character, bool is_start);
  [[nodiscard]] std::size_t last_certain_start() const;
  void collect(std::string_view text, std::size_t last);

  SplitRule rule_;
  bool reached_end_ = false;
  std::size_t num_characters_ = 0, num_bytes_ = 0;
  std::vector<std::uint8_t> classes_;   ///< of each character
  std::vector<std::uint32_t> offsets_;  ///< of each character's first byte, and the end
  std::vector<Planes> planes_;          ///< of each 64 characters, between two empty ones
  std::vector<std::string_view> pretokens_;
  std::size_t num_pretokens_ = 0;
};

}  // namespace kozero::io
