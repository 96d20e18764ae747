// SPDX-FileCopyrightText: The KoZeRO authors
// SPDX-License-Identifier: Apache-2.0
// bpe_merges.cpp: applying merges takes O(n log n) for n bytes. Learning changes only the pretokens that contain the
// joined pair, and a heap with stale entries gives the next pair.
#include <algorithm>
#include <functional>
#include <queue>
#include <unordered_map>

#include <kozero/core/error.hpp>
#include "io/text/bpe_merges.hpp"

namespace kozero::io {

namespace {

constexpr Token kNone = -1;

std::uint64_t key_of(Token left, Token right) {
  return (static_cast<std::uint64_t>(static_cast<std::uint32_t>(left)) << 32) | static_cast<std::uint32_t>(right);
}

/// An element of the doubly linked list of a pretoken's tokens. The index of an element is the position of its first
/// byte.
struct Link {
  Token token;  // kNone: now part of a token to its left
  std::int32_t previous, next;
};

/// A possible merge, lowest rank first, then leftmost. Stale if the neighbors have changed since.
struct Candidate {
  std::int32_t rank, position;
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

/// A pretoken with its present tokens.
struct Word {
  std::vector<Token> tokens;
  std::int64_t count;
};

struct PairRecord {
  std::int64_t count = 0;
  std::vector<std::uint32_t> words;  // that contain the pair or did earlier
};

struct PairHash {
  std::size_t operator()(const Merge& pair) const {
    return (static_cast<std::size_t>(pair.first) * 0x9E3779B97F4A7C15ULL) ^ static_cast<std::size_t>(pair.second);
  }
};

/// A pair with the count it had when it was queued.
struct Queued {
  std::int64_t count;
  Merge pair;
  friend bool operator<(const Queued& a, const Queued& b) {
    return a.count != b.count ? a.count < b.count : a.pair > b.pair;
  }
};

class MergeLearner {
 public:
  explicit MergeLearner(const PretokenCounts& pretokens) {
    for (const auto& [pretoken, count] : pretokens) {
      Word word{{}, count};
      for (const char byte : pretoken) word.tokens.push_back(static_cast<unsigned char>(byte));
      words_.push_back(std::move(word));
      count_pairs(static_cast<std::uint32_t>(words_.size() - 1), +1);
    }
    queue_changed();
  }

  /// The pair to join next; false if no pair occurs twice.
  bool best(Merge& pair) {
    while (!queue_.empty()) {
      const Queued top = queue_.top();
      if (top.count < 2) return false;
      queue_.pop();
      const auto found = records_.find(top.pair);
      if (found == records_.end() || found->second.count != top.count) continue;
      pair = top.pair;
      return true;
    }
    return false;
  }

  void join(const Merge& pair, Token made) {
    const auto holders = std::move(records_[pair].words);
    for (const std::uint32_t holder : holders) {
      if (!holds(words_[holder].tokens, pair)) continue;
      count_pairs(holder, -1);
      replace(words_[holder].tokens, pair, made);
      count_pairs(holder, +1);
    }
    records_.erase(pair);
    queue_changed();
  }

 private:
  static bool holds(const std::vector<Token>& tokens, const Merge& pair) {
    for (std::size_t i = 0; i + 1 < tokens.size(); ++i) {
      if (tokens[i] == pair.first && tokens[i + 1] == pair.second) return true;
    }
    return false;
  }

  static void replace(std::vector<Token>& tokens, const Merge& pair, Token made) {
    std::size_t end = 0;
    for (std::size_t i = 0; i < tokens.size(); ++i) {
      const bool match = i + 1 < tokens.size() && tokens[i] == pair.first && tokens[i + 1] == pair.second;
      tokens[end++] = match ? made : tokens[i];
      i += match ? 1 : 0;
    }
    tokens.resize(end);
  }

  /// Adds the word's pairs to the counts, or subtracts them (sign -1).
  void count_pairs(std::uint32_t word, int sign) {
    const auto& tokens = words_[word].tokens;
    for (std::size_t i = 0; i + 1 < tokens.size(); ++i) {
      const Merge pair{tokens[i], tokens[i + 1]};
      PairRecord& record = records_[pair];
      record.count += sign * words_[word].count;
      if (sign > 0 && (record.words.empty() || record.words.back() != word)) record.words.push_back(word);
      changed_.push_back(pair);
    }
  }

  void queue_changed() {
    std::sort(changed_.begin(), changed_.end());
    changed_.erase(std::unique(changed_.begin(), changed_.end()), changed_.end());
    for (const auto& pair : changed_) {
      const auto found = records_.find(pair);
      if (found != records_.end() && found->second.count > 0) queue_.push({found->second.count, pair});
    }
    changed_.clear();
  }

  std::vector<Word> words_;
  std::unordered_map<Merge, PairRecord, PairHash> records_;
  std::priority_queue<Queued> queue_;
  std::vector<Merge> changed_;  // since the last call of queue_changed
};

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

std::int64_t MergeRules::apply(std::string_view pretoken, std::vector<Token>& out) const {
  require(pretoken.size() < (std::size_t{1} << 31), "MergeRules: a pretoken of 2 GiB");
  auto links = links_of(bytes_, pretoken);
  std::priority_queue<Candidate, std::vector<Candidate>, std::greater<>> candidates;
  const auto at = [&](std::int32_t position) -> Link& { return links[static_cast<std::size_t>(position)]; };
  const auto made_at = [&](std::int32_t position) {
    const Link& link = at(position);
    return link.token == kNone || link.next < 0 ? Made{-1, kNone} : joined(link.token, at(link.next).token);
  };
  const auto propose = [&](std::int32_t position) {
    if (const Made made = made_at(position); made.rank >= 0) candidates.push({made.rank, position});
  };
  for (std::int32_t i = 0; i < static_cast<std::int32_t>(pretoken.size()); ++i) propose(i);
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
  for (std::int32_t i = pretoken.empty() ? -1 : 0; i >= 0; i = at(i).next) out.push_back(at(i).token);
  return looked_at;
}

std::vector<Merge> learn_merges(const PretokenCounts& pretokens, int num_merges) {
  MergeLearner learner(pretokens);
  std::vector<Merge> merges;
  for (Merge pair; static_cast<int>(merges.size()) < num_merges && learner.best(pair);) {
    learner.join(pair, static_cast<Token>(256 + merges.size()));
    merges.push_back(pair);
  }
  return merges;
}

}  // namespace kozero::io
