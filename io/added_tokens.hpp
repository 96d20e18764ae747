// SPDX-FileCopyrightText: The KoZeRO authors
// SPDX-License-Identifier: Apache-2.0
// added_tokens.hpp: tokens that are written out in the text, such as <|endoftext|>, and are found before it is split.
//   "one<|endoftext|>two"  ->  at 3, the id of <|endoftext|>            leftmost first, of those the longest
// Sorted texts, narrowed byte by byte: at each place the time is that of the part that matches.
#pragma once
#include <array>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <kozero/core/views.hpp>

namespace kozero::io {

class AddedTokens {
 public:
  /// None of the texts may be empty.
  explicit AddedTokens(std::vector<std::pair<std::string, Token>> tokens);

  [[nodiscard]] bool empty() const { return tokens_.empty(); }
  struct Match {
    std::size_t begin, end;
    Token id;  ///< -1, and begin = end = text.size(), where none follows
  };
  /// The first one that begins at or after `start`.
  [[nodiscard]] Match find(std::string_view text, std::size_t start) const;

 private:
  [[nodiscard]] Match longest_at(std::string_view text, std::size_t begin) const;

  std::vector<std::pair<std::string, Token>> tokens_;  ///< sorted by text
  std::array<bool, 256> begins_{};                     ///< the bytes that some token begins with
};

}  // namespace kozero::io
