// SPDX-FileCopyrightText: The KoZeRO authors
// SPDX-License-Identifier: Apache-2.0
// bpe_merges.hpp: the merges of byte-pair encoding: applied to one pretoken, and learnt from counted pretokens.
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

// The merges of byte-pair encoding, in the order of their rank, applied to one pretoken.
//   while some neighbors are a rule's (left, right): join those of the lowest rank, the leftmost first
// A heap over linked neighbors: O(n log n) for a pretoken of n bytes, so a megabyte of one letter is no trap.
// Sennrich, Haddow, Birch 2016, arXiv:1508.07909.

struct MergeRule {
  Token left, right;
  Token made;  ///< several rules may make the same token, from other parts
};

using ByteIds = std::array<Token, 256>;  ///< the token of each byte

class MergeRules {
 public:
  /// `rules` by rank; of two for the same neighbors the first counts.
  MergeRules(const ByteIds& bytes, std::span<const MergeRule> rules);

  /// Appends the pretoken's tokens to `out`. Returns how many candidates the heap gave: the work done.
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

// Learns the merges of byte-pair encoding from counted pretokens.
//   repeat: join the pair of neighbors with the largest count over all pretokens; of equal counts the smaller ids win
// No token is made twice: merges inside a string that no merge crosses go the same way wherever the string stands.
// Each join touches only the pretokens that hold the pair; a heap with stale entries gives the next one.
// Sennrich, Haddow, Birch 2016, arXiv:1508.07909.

/// The ids that are joined: 0..255 are the bytes, 256 + r is what merge r makes.
using Merge = std::pair<Token, Token>;
using PretokenCounts = std::map<std::string, std::int64_t>;

/// At most `num_merges` merges; fewer where no pair is met twice any more.
std::vector<Merge> learn_merges(const PretokenCounts& pretokens, int num_merges);

}  // namespace kozero::io
