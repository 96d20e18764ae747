// SPDX-FileCopyrightText: The KoZeRO authors
// SPDX-License-Identifier: Apache-2.0
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

/// A possible merge, lowest id first, then leftmost. Stale where the neighbours have changed since.
struct Candidate {
  Token made;
  std::int32_t position;
  friend bool operator>(const Candidate& a, const Candidate& b) {
    return a.made != b.made ? a.made > b.made : a.position > b.position;
  }
};

std::vector<Link> links_of(std::string_view piece) {
  const auto size = static_cast<std::int32_t>(piece.size());
  std::vector<Link> links(piece.size());
  for (std::int32_t i = 0; i < size; ++i) {
    links[static_cast<std::size_t>(i)] = {static_cast<unsigned char>(piece[static_cast<std::size_t>(i)]), i - 1,
                                          i + 1 < size ? i + 1 : -1};
  }
  return links;
}

}  // namespace

MergeRules::MergeRules(std::vector<Merge> merges) : merges_(std::move(merges)) {
  made_.reserve(merges_.size());
  for (std::size_t rank = 0; rank < merges_.size(); ++rank) {
    made_.emplace(key_of(merges_[rank].first, merges_[rank].second), static_cast<Token>(256 + rank));
  }
}

Token MergeRules::joined(Token left, Token right) const {
  const auto found = made_.find(key_of(left, right));
  return found == made_.end() ? kNone : found->second;
}

void MergeRules::apply(std::string_view piece, std::vector<Token>& out) const {
  require(piece.size() < (std::size_t{1} << 31), "MergeRules: a piece of 2 GiB");
  auto links = links_of(piece);
  std::priority_queue<Candidate, std::vector<Candidate>, std::greater<>> candidates;
  const auto at = [&](std::int32_t position) -> Link& { return links[static_cast<std::size_t>(position)]; };
  const auto made_at = [&](std::int32_t position) {
    const Link& link = at(position);
    return link.token == kNone || link.next < 0 ? kNone : joined(link.token, at(link.next).token);
  };
  const auto propose = [&](std::int32_t position) {
    if (const Token made = made_at(position); made != kNone) candidates.push({made, position});
  };
  for (std::int32_t i = 0; i < static_cast<std::int32_t>(piece.size()); ++i) propose(i);
  while (!candidates.empty()) {
    const auto [made, position] = candidates.top();
    candidates.pop();
    if (made_at(position) != made) continue;
    Link& left = at(position);
    Link& right = at(left.next);
    left.token = made;
    left.next = right.next;
    right.token = kNone;
    if (left.next >= 0) at(left.next).previous = position;
    propose(position);
    if (left.previous >= 0) propose(left.previous);
  }
  for (std::int32_t i = piece.empty() ? -1 : 0; i >= 0; i = at(i).next) out.push_back(at(i).token);
}

}  // namespace kozero::io
