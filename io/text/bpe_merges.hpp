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
#include <span>
#include <string_view>
#include <utility>
#include <vector>

#include <kozero/core/views.hpp>

namespace kozero::io {

struct MergeRule {
  Token left, right;
  Token made;  ///< several rules may make the same token, from other parts
};

using ByteIds = std::array<Token, 256>;  ///< the token of each byte

/// Applies merges. Short pretokens are merged in arrays: a scan finds the lowest rank. Longer ones have a heap over a
/// linked list of neighbors, which takes O(n log n) for n bytes, even for a megabyte of one letter.
class MergeRules {
 public:
  static constexpr std::size_t kMaxRules = std::size_t{1} << 24;
  static constexpr Token kMaxIds = 1 << 20;

  /// `rules` in the order of their rank, at most kMaxRules, of ids below kMaxIds. If two have the same neighbors, the
  /// first applies.
  MergeRules(const ByteIds& bytes, std::span<const MergeRule> rules);

  /// Appends the pretoken's tokens to `out`. Returns the number of merges that were considered, a measure of the work.
  std::int64_t apply(std::string_view pretoken, std::vector<Token>& out) const;

 private:
  static constexpr std::size_t kShortBytes = 128;
  static constexpr std::uint32_t kNoRank = kMaxRules;

  std::int64_t apply_in_arrays(std::string_view pretoken, std::vector<Token>& out) const;
  std::int64_t apply_with_heap(std::string_view pretoken, std::vector<Token>& out) const;
  /// The rank of the rule for these neighbors, or kNoRank.
  [[nodiscard]] std::uint32_t rank_of(Token left, Token right) const;

  ByteIds bytes_;
  std::vector<std::uint32_t> rank_of_bytes_;  ///< of the tokens of two bytes: [first * 256 + second]
  /// Open addressing: the neighbors' ids in 40 bits, then the rank in 24; all bits set in an empty slot.
  std::vector<std::uint64_t> slots_;
  int shift_ = 0;
  /// A bit for the hash of each pair of neighbors: small enough for the second-level cache, unlike slots_, which pairs
  /// without a rule would read from memory.
  std::vector<std::uint64_t> filter_;
  std::vector<Token> made_;  ///< by each rank
};

/// The two ids that are joined: 0..255 are the bytes, 256 + r is the token that merge r makes.
using Merge = std::pair<Token, Token>;

/// A pretoken and how often it occurs in a corpus.
struct CountedPretoken {
  std::string_view text;
  std::int64_t count;
};

/// At most `num_merges` merges; fewer if no pair occurs twice any more. No two merges make the same token: a string
/// that no merge crosses is merged in the same way wherever it occurs. The order of the pretokens is of no effect.
std::vector<Merge> learn_merges(std::span<const CountedPretoken> pretokens, int num_merges);

}  // namespace kozero::io
