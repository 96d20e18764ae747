// SPDX-FileCopyrightText: The KoZeRO authors
// SPDX-License-Identifier: Apache-2.0
// bpe_merges.hpp: the merges of byte-pair encoding: applied to one pretoken, and learned from counted pretokens.
//   apply: while some neighbors are a rule's (left, right), join those of the lowest rank, the leftmost first
//   learn: repeatedly join the pair of neighbors with the largest count over all pretokens; of equal counts the pair
//          with the smaller ids
// Sennrich, Haddow, Birch 2016, arXiv:1508.07909.
#pragma once
#include <array>
#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

#include <kozero/core/views.hpp>

namespace kozero::io {

struct MergeRule {
  Token left, right;
  Token made;  ///< several rules may make the same token, from other parts
};

using ByteIds = std::array<Token, 256>;  ///< the token of each byte

/// Applies merges. A heap over a linked list of neighbors takes O(n log n) for a pretoken of n bytes, even for a
/// megabyte of one letter.
class MergeRules {
 public:
  /// `rules` in the order of their rank. If two have the same neighbors, the first applies.
  MergeRules(const ByteIds& bytes, std::span<const MergeRule> rules);

  /// Appends the pretoken's tokens to `out`. Returns the number of candidates taken from the heap, a measure of the
  /// work.
  std::int64_t apply(std::string_view pretoken, std::vector<Token>& out) const;

 private:
  struct Made {
    std::int32_t rank;  ///< -1: the neighbors stay apart
    Token token;
  };
  [[nodiscard]] Made joined(Token left, Token right) const;

  ByteIds bytes_;
  std::unordered_map<std::uint64_t, Made> made_;  ///< left * 2^32 + right
};

/// The two ids that are joined: 0..255 are the bytes, 256 + r is the token that merge r makes.
using Merge = std::pair<Token, Token>;
using PretokenCounts = std::map<std::string, std::int64_t>;

/// At most `num_merges` merges; fewer if no pair occurs twice any more. No two merges make the same token: a string
/// that no merge crosses is merged in the same way wherever it occurs.
std::vector<Merge> learn_merges(const PretokenCounts& pretokens, int num_merges);

}  // namespace kozero::io
