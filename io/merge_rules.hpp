// SPDX-FileCopyrightText: The KoZeRO authors
// SPDX-License-Identifier: Apache-2.0
// merge_rules.hpp: the merges of byte-pair encoding, in the order they were learnt, applied to one piece.
//   ids 0..255 are the bytes, id 256 + r is what merge r = (left, right) makes
//   while some neighbours are a merge's (left, right): join those of the lowest r, the leftmost first
// A heap over linked neighbours: O(n log n) for a piece of n bytes, so a megabyte of one letter is no trap.
// Sennrich, Haddow, Birch 2016, arXiv:1508.07909.
#pragma once
#include <cstdint>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

#include <kozero/core/views.hpp>

namespace kozero::io {

using Merge = std::pair<Token, Token>;

class MergeRules {
 public:
  explicit MergeRules(std::vector<Merge> merges);

  [[nodiscard]] const std::vector<Merge>& merges() const { return merges_; }
  /// Appends the piece's tokens to `out`.
  void apply(std::string_view piece, std::vector<Token>& out) const;

 private:
  /// What the neighbours make, or -1.
  [[nodiscard]] Token joined(Token left, Token right) const;

  std::vector<Merge> merges_;
  std::unordered_map<std::uint64_t, Token> made_;  ///< left * 2^32 + right -> id
};

}  // namespace kozero::io
