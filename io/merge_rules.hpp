// SPDX-FileCopyrightText: The KoZeRO authors
// SPDX-License-Identifier: Apache-2.0
// merge_rules.hpp: the merges of byte-pair encoding, in the order of their rank, applied to one piece.
//   while some neighbours are a rule's (left, right): join those of the lowest rank, the leftmost first
// A heap over linked neighbours: O(n log n) for a piece of n bytes, so a megabyte of one letter is no trap.
// Sennrich, Haddow, Birch 2016, arXiv:1508.07909.
#pragma once
#include <array>
#include <cstdint>
#include <span>
#include <string_view>
#include <unordered_map>
#include <vector>

#include <kozero/core/views.hpp>

namespace kozero::io {

struct MergeRule {
  Token left, right;
  Token made;  ///< several rules may make the same token, from other parts
};

using ByteIds = std::array<Token, 256>;  ///< the token of each byte

class MergeRules {
 public:
  /// `rules` by rank; of two for the same neighbours the first counts.
  MergeRules(const ByteIds& bytes, std::span<const MergeRule> rules);

  /// Appends the piece's tokens to `out`. Returns how many candidates the heap gave: the work done.
  std::int64_t apply(std::string_view piece, std::vector<Token>& out) const;

 private:
  struct Made {
    std::int32_t rank;  ///< -1: the neighbours stay apart
    Token token;
  };
  [[nodiscard]] Made joined(Token left, Token right) const;

  ByteIds bytes_;
  std::unordered_map<std::uint64_t, Made> made_;  ///< left * 2^32 + right
};

}  // namespace kozero::io
