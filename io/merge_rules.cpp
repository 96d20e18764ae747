// SPDX-FileCopyrightText: The KoZeRO authors
// SPDX-License-Identifier: Apache-2.0
#include <functional>
#include <queue>

#include <kozero/core/error.hpp>
#include <kozero/io/merge_rules.hpp>

namespace kozero::io {

namespace {

constexpr Token kNone = -1;

std::uint64_t key_of(Token left, Token right) {
  return (static_cast<std::uint64_t>(static_cast<std::uint32_t>(left)) << 32) | static_cast<std::uint32_t>(right);
}

/// A piece while it is merged: its tokens as a doubly linked list over the positions of their first bytes.
struct Link {
  Token token;  // kNone: joined into a token on its left
  std::int32_t previous, next;
};

/// A possible merge, lowest rank first, then leftmost. Stale where the neighbours have changed since.
struct Candidate {
  std::int32_t rank, position;
  friend bool operator>(const Candidate& a, const Candidate& b) {
    return a.rank != b.rank ? a.rank > b.rank : a.position > b.position;
  }
};

std::vector<Link> links_of(const ByteIds& bytes, std::string_view piece) {
  const auto size = static_cast<std::int32_t>(piece.size());
  std::vector<Link> links(piece.size());
  for (std::int32_t i = 0; i < size; ++i) {
    const auto byte = static_cast<unsigned char>(piece[static_cast<std::size_t>(i)]);
    links[static_cast<std::size_t>(i)] = {bytes[byte], i - 1, i + 1 < size ? i + 1 : -1};
  }
  return links;
}

}  // namespace

MergeRules::MergeRules(const ByteIds& bytes, std::span<const MergeRule> rules) : bytes_(bytes) {
  made_.reserve(rules.size());
  std::int32_t rank = 0;
  for (const auto& [left, right, made] : rules) made_.emplace(key_of(left, right), Made{rank++, made});
}

MergeRules::Made MergeRules::joined(Token left, Token right) const {
  const auto found = made_.find(key_of(left, right));
  return found == made_.end() ? Made{-1, kNone} : found->second;
}

std::int64_t MergeRules::apply(std::string_view piece, std::vector<Token>& out) const {
  require(piece.size() < (std::size_t{1} << 31), "MergeRules: a piece of 2 GiB");
  auto links = links_of(bytes_, piece);
  std::priority_queue<Candidate, std::vector<Candidate>, std::greater<>> candidates;
  const auto at = [&](std::int32_t position) -> Link& { return links[static_cast<std::size_t>(position)]; };
  const auto made_at = [&](std::int32_t position) {
    const Link& link = at(position);
    return link.token == kNone || link.next < 0 ? Made{-1, kNone} : joined(link.token, at(link.next).token);
  };
  const auto propose = [&](std::int32_t position) {
    if (const Made made = made_at(position); made.rank >= 0) candidates.push({made.rank, position});
  };
  for (std::int32_t i = 0; i < static_cast<std::int32_t>(piece.size()); ++i) propose(i);
  std::int64_t looked_at = 0;
  for (; !candidates.empty(); ++looked_at) {
    const auto [rank, position] = candidates.top();
    candidates.pop();
    const Made made = made_at(position);
    if (made.rank != rank) continue;
    Link& left = at(position);
    Link& right = at(left.next);
    left.token = made.token;
    left.next = right.next;
    right.token = kNone;
    if (left.next >= 0) at(left.next).previous = position;
    propose(position);
    if (left.previous >= 0) propose(left.previous);
  }
  for (std::int32_t i = piece.empty() ? -1 : 0; i >= 0; i = at(i).next) out.push_back(at(i).token);
  return looked_at;
}

}  // namespace kozero::io
