// SPDX-FileCopyrightText: The KoZeRO authors
// SPDX-License-Identifier: Apache-2.0
// bpe_merges.cpp: applying merges to one pretoken, in arrays or with a heap.
#include <algorithm>
#include <bit>
#include <functional>
#include <limits>
#include <queue>

#include <kozero/core/error.hpp>
#include "io/text/bpe_merges.hpp"

namespace kozero::io {

namespace {

constexpr Token kNone = -1;
constexpr std::uint64_t kEmpty = ~std::uint64_t{0};
constexpr int kRankBits = 24, kIdBits = 20;

std::uint64_t key_of(Token left, Token right) {
  return (static_cast<std::uint64_t>(static_cast<std::uint32_t>(left)) << kIdBits) | static_cast<std::uint32_t>(right);
}

std::uint64_t hash_of(std::uint64_t key) { return key * 0x9E3779B97F4A7C15ULL; }

/// A filter of 16 bits per slot: the word and the bit of a hash whose top 64 - shift bits are the slot.
std::size_t filter_word(std::uint64_t hash, int shift) { return hash >> (shift + 2); }
std::uint64_t filter_bit(std::uint64_t hash, int shift) { return std::uint64_t{1} << ((hash >> (shift - 4)) % 64); }

/// The lowest element of a multiple of 16.
std::uint32_t lowest(const std::uint32_t* values, std::size_t size) {
  constexpr std::size_t kLanes = 16;
  std::array<std::uint32_t, kLanes> low;
  low.fill(std::numeric_limits<std::uint32_t>::max());
  for (std::size_t first = 0; first < size; first += kLanes) {
    for (std::size_t i = 0; i < kLanes; ++i) low[i] = std::min(low[i], values[first + i]);
  }
  for (std::size_t half = kLanes / 2; half > 0; half /= 2) {
    for (std::size_t i = 0; i < half; ++i) low[i] = std::min(low[i], low[i + half]);
  }
  return low[0];
}

/// An element of the doubly linked list of a pretoken's tokens. The index of an element is the position of its first
/// byte.
struct Link {
  Token token;  // kNone: now part of a token to its left
  std::int32_t previous, next;
};

/// A possible merge, lowest rank first, then leftmost. Stale if the neighbors have changed since.
struct Candidate {
  std::uint32_t rank;
  std::int32_t position;
  friend bool operator>(const Candidate& a, const Candidate& b) {
    return a.rank != b.rank ? a.rank > b.rank : a.position > b.position;
  }
};

std::vector<Link> links_of(const ByteIds& bytes, std::string_view pretoken) {
  const auto size = static_cast<std::int32_t>(pretoken.size());
  std::vector<Link> links(pretoken.size());
  for (std::int32_t i = 0; i < size; ++i) {
    const auto byte = static_cast<unsigned char>(pretoken[static_cast<std::size_t>(i)]);
    links[static_cast<std::size_t>(i)] = {bytes[byte], i - 1, i + 1 < size ? i + 1 : -1};
  }
  return links;
}

}  // namespace

MergeRules::MergeRules(const ByteIds& bytes, std::span<const MergeRule> rules) : bytes_(bytes) {
  require(rules.size() < kMaxRules, "MergeRules: too many rules");
  const std::size_t num_slots = std::bit_ceil(rules.size() + rules.size() / 4 + 64);
  slots_.assign(num_slots, kEmpty);
  shift_ = 64 - std::countr_zero(num_slots);
  filter_.assign(num_slots / 4, 0);
  for (const auto& [left, right, made] : rules) {
    require(left < kMaxIds && right < kMaxIds, "MergeRules: an id is too large");
    const std::uint64_t key = key_of(left, right);
    std::size_t slot = hash_of(key) >> shift_;
    while (slots_[slot] != kEmpty && slots_[slot] >> kRankBits != key) slot = (slot + 1) % num_slots;
    if (slots_[slot] == kEmpty) slots_[slot] = key << kRankBits | made_.size();
    filter_[filter_word(hash_of(key), shift_)] |= filter_bit(hash_of(key), shift_);
    made_.push_back(made);
  }
  rank_of_bytes_.reserve(std::size_t{256} * 256);
  for (const Token first : bytes_) {
    for (const Token second : bytes_) rank_of_bytes_.push_back(rank_of(first, second));
  }
}

std::uint32_t MergeRules::rank_of(Token left, Token right) const {
  const std::uint64_t key = key_of(left, right), hash = hash_of(key);
  if ((filter_[filter_word(hash, shift_)] & filter_bit(hash, shift_)) == 0) return kNoRank;
  for (std::size_t slot = hash >> shift_;; slot = (slot + 1) & (slots_.size() - 1)) {
    const std::uint64_t found = slots_[slot];
    if (found == kEmpty) return kNoRank;
    if (found >> kRankBits == key) return static_cast<std::uint32_t>(found & (kMaxRules - 1));
  }
}

std::int64_t MergeRules::apply(std::string_view pretoken, std::vector<Token>& out) const {
  return pretoken.size() <= kShortBytes ? apply_in_arrays(pretoken, out) : apply_with_heap(pretoken, out);
}

/// The element of a token is the position of its first byte. candidate[i] = rank * 128 + i for the token at i and the
/// next, so the lowest is the merge of the lowest rank, the leftmost first.
std::int64_t MergeRules::apply_in_arrays(std::string_view pretoken, std::vector<Token>& out) const {
  constexpr std::uint32_t kNever = std::numeric_limits<std::uint32_t>::max();
  constexpr int kPositionBits = std::countr_zero(kShortBytes);
  const auto size = static_cast<std::uint32_t>(pretoken.size());
  std::array<Token, kShortBytes> token;
  std::array<std::uint32_t, kShortBytes> candidate;
  std::array<std::uint8_t, kShortBytes + 1> previous, next;
  const auto propose = [&](std::uint32_t rank, std::uint32_t position) {
    candidate[position] = rank == kNoRank ? kNever : rank << kPositionBits | position;
  };
  for (std::uint32_t i = 0; i < size; ++i) {
    const auto byte = static_cast<unsigned char>(pretoken[i]);
    token[i] = bytes_[byte];
    previous[i + 1] = static_cast<std::uint8_t>(i);
    next[i] = static_cast<std::uint8_t>(i + 1);
    if (i + 1 < size) propose(rank_of_bytes_[byte * 256U + static_cast<unsigned char>(pretoken[i + 1])], i);
  }
  const std::uint32_t padded = (size + 15) / 16 * 16;
  for (std::uint32_t i = std::max(size, 1U) - 1; i < padded; ++i) candidate[i] = kNever;
  std::int64_t num_merges = 0;
  for (std::uint32_t best; (best = lowest(candidate.data(), padded)) != kNever; ++num_merges) {
    const std::uint32_t position = best % kShortBytes, right = next[position], end = next[right];
    token[position] = made_[best >> kPositionBits];
    next[position] = static_cast<std::uint8_t>(end);
    previous[end] = static_cast<std::uint8_t>(position);
    candidate[right] = kNever;
    propose(end < size ? rank_of(token[position], token[end]) : kNoRank, position);
    if (position > 0) propose(rank_of(token[previous[position]], token[position]), previous[position]);
  }
  for (std::uint32_t i = 0; i < size; i = next[i]) out.push_back(token[i]);
  return num_merges + size;
}

std::int64_t MergeRules::apply_with_heap(std::string_view pretoken, std::vector<Token>& out) const {
  require(pretoken.size() < (std::size_t{1} << 31), "MergeRules: a pretoken of 2 GiB");
  auto links = links_of(bytes_, pretoken);
  std::priority_queue<Candidate, std::vector<Candidate>, std::greater<>> candidates;
  const auto at = [&](std::int32_t position) -> Link& { return links[static_cast<std::size_t>(position)]; };
  const auto rank_at = [&](std::int32_t position) {
    const Link& link = at(position);
    return link.token == kNone || link.next < 0 ? kNoRank : rank_of(link.token, at(link.next).token);
  };
  const auto propose = [&](std::int32_t position) {
    if (const std::uint32_t rank = rank_at(position); rank != kNoRank) candidates.push({rank, position});
  };
  for (std::int32_t i = 0; i < static_cast<std::int32_t>(pretoken.size()); ++i) propose(i);
  std::int64_t looked_at = 0;
  for (; !candidates.empty(); ++looked_at) {
    const auto [rank, position] = candidates.top();
    candidates.pop();
    if (rank_at(position) != rank) continue;
    Link& left = at(position);
    Link& right = at(left.next);
    left.token = made_[rank];
    left.next = right.next;
    right.token = kNone;
    if (left.next >= 0) at(left.next).previous = position;
    propose(position);
    if (left.previous >= 0) propose(left.previous);
  }
  for (std::int32_t i = pretoken.empty() ? -1 : 0; i >= 0; i = at(i).next) out.push_back(at(i).token);
  return looked_at;
}

}  // namespace kozero::io
