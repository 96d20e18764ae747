// SPDX-FileCopyrightText: The KoZeRO authors
// SPDX-License-Identifier: Apache-2.0
// bpe_learning.cpp: learning merges. A merge changes only the words that contain the joined pair, and in them only the
// counts of the pairs beside it. A heap gives the next pair; counts in it may be too large, and are corrected when
// their pair comes to the top.
#include <limits>
#include <queue>
#include <utility>

#include <kozero/core/error.hpp>
#include "io/text/bpe_merges.hpp"

namespace kozero::io {

namespace {

/// A pair of neighbors as one number, which orders pairs by their left, then their right token.
using PairKey = std::uint64_t;
PairKey key_of(Token left, Token right) {
  return (static_cast<std::uint64_t>(static_cast<std::uint32_t>(left)) << 32) | static_cast<std::uint32_t>(right);
}
Merge merge_of(PairKey key) { return {static_cast<Token>(key >> 32), static_cast<Token>(key & 0xFFFFFFFFU)}; }

struct PairRecord {
  PairKey key;
  std::int64_t count = 0;
  std::size_t first = 0, num_words = 0;  ///< in MergeLearner::holders_: words that contain the pair or did earlier
};

/// What one merge changes on one side of the joined pair: by each neighbor, how often it is there, and in which words.
class Neighbors {
 public:
  void add(Token neighbor, std::int64_t count, std::uint32_t word) {
    const auto index = static_cast<std::size_t>(neighbor);
    if (index >= counts_.size()) {
      counts_.resize(2 * index + 1, 0);
      nums_.resize(2 * index + 1, 0);
    }
    if (nums_[index]++ == 0) all_.push_back(neighbor);
    counts_[index] += count;
    seen_.push_back({neighbor, word});
  }

  /// Appends the words of each neighbor to `holders`, calls visit(neighbor, count, first, num_words) for it, and
  /// forgets all.
  template <class Visit>
  void take(std::vector<std::uint32_t>& holders, const Visit& visit) {
    std::size_t first = holders.size();
    for (const Token neighbor : all_) {
      const auto index = static_cast<std::size_t>(neighbor);
      const std::size_t num_words = nums_[index];
      visit(neighbor, counts_[index], first, num_words);
      nums_[index] = first;  // where its next word goes
      counts_[index] = 0;
      first += num_words;
    }
    holders.resize(first);
    for (const auto& [neighbor, word] : seen_) holders[nums_[static_cast<std::size_t>(neighbor)]++] = word;
    for (const Token neighbor : all_) nums_[static_cast<std::size_t>(neighbor)] = 0;
    all_.clear();
    seen_.clear();
  }

 private:
  std::vector<std::int64_t> counts_;  ///< by each neighbor
  std::vector<std::size_t> nums_;
  std::vector<Token> all_;
  std::vector<std::pair<Token, std::uint32_t>> seen_;
};

/// Pairs and their records, numbered from 0: open addressing with linear probing, at most half full.
class PairTable {
 public:
  PairTable() : slots_(std::size_t{1} << 16, kEmpty) {}

  PairRecord& operator[](PairKey key) {
    std::size_t at = place_of(key);
    if (slots_[at] == kEmpty) {
      if (2 * (records_.size() + 1) > slots_.size()) {
        grow();
        at = place_of(key);
      }
      slots_[at] = static_cast<std::uint32_t>(records_.size());
      records_.push_back({key});
    }
    return records_[slots_[at]];
  }
  [[nodiscard]] std::vector<PairRecord>& records() { return records_; }

 private:
  static constexpr std::uint32_t kEmpty = 0xFFFFFFFFU;

  [[nodiscard]] std::size_t place_of(PairKey key) const {
    const std::size_t mask = slots_.size() - 1;
    std::size_t at = (key * 0x9E3779B97F4A7C15ULL >> 32) & mask;
    while (slots_[at] != kEmpty && records_[slots_[at]].key != key) at = (at + 1) & mask;
    return at;
  }
  void grow() {
    slots_.assign(2 * slots_.size(), kEmpty);
    for (std::size_t i = 0; i < records_.size(); ++i) {
      slots_[place_of(records_[i].key)] = static_cast<std::uint32_t>(i);
    }
  }

  std::vector<std::uint32_t> slots_;
  std::vector<PairRecord> records_;
};

/// A pair with the count that it had when it was queued. Of equal counts the smaller pair comes first.
struct Queued {
  std::int64_t count;
  PairKey key;
  friend bool operator<(const Queued& a, const Queued& b) {
    return a.count != b.count ? a.count < b.count : a.key > b.key;
  }
};

/// The tokens of a pretoken in MergeLearner::tokens_. A merge shortens them; what it leaves over is behind them.
struct Word {
  std::uint32_t first, size;
};

class MergeLearner {
 public:
  explicit MergeLearner(std::span<const CountedPretoken> pretokens) {
    std::vector<std::pair<std::uint32_t, std::uint32_t>> seen;  // number of a pair, word
    for (const auto& [text, count] : pretokens) {
      const auto number = static_cast<std::uint32_t>(words_.size());
      require(tokens_.size() + text.size() < std::numeric_limits<std::uint32_t>::max(), "learn_merges: 4 GiB of text");
      words_.push_back({static_cast<std::uint32_t>(tokens_.size()), static_cast<std::uint32_t>(text.size())});
      counts_.push_back(count);
      for (const char byte : text) tokens_.push_back(static_cast<unsigned char>(byte));
      const Token* const token = tokens_.data() + words_.back().first;
      for (std::size_t i = 0; i + 1 < text.size(); ++i) {
        PairRecord& record = pairs_[key_of(token[i], token[i + 1])];
        record.count += count;
        ++record.num_words;
        seen.emplace_back(static_cast<std::uint32_t>(&record - pairs_.records().data()), number);
      }
    }
    for (auto& record : pairs_.records()) {
      queue_.push({record.count, record.key});
      record.first = holders_.size();
      holders_.resize(holders_.size() + std::exchange(record.num_words, 0));
    }
    for (const auto& [pair, word] : seen) {
      auto& record = pairs_.records()[pair];
      holders_[record.first + record.num_words++] = word;
    }
  }

  /// The pair to join next; false if no pair occurs twice.
  bool best(Merge& pair) {
    while (!queue_.empty() && queue_.top().count >= 2) {
      const Queued top = queue_.top();
      queue_.pop();
      const std::int64_t count = pairs_[top.key].count;
      if (count == top.count) {
        pair = merge_of(top.key);
        return true;
      }
      if (count > 0) queue_.push({count, top.key});
    }
    return false;
  }

  void join(const Merge& pair, Token made) {
    PairRecord& joined = pairs_[key_of(pair.first, pair.second)];
    const std::size_t first = joined.first, end = first + joined.num_words;
    for (std::size_t i = first; i < end; ++i) {
      load_ahead(i, end);
      join_in(holders_[i], pair, made);
    }
    const std::size_t num_pairs = pairs_.records().size();
    left_.take(holders_, [&](Token left, std::int64_t count, std::size_t at, std::size_t num_words) {
      pairs_[key_of(left, pair.first)].count -= count;
      extend(key_of(left, made), count, at, num_words);
    });
    right_.take(holders_, [&](Token right, std::int64_t count, std::size_t at, std::size_t num_words) {
      pairs_[key_of(pair.second, right)].count -= count;
      extend(key_of(made, right), count, at, num_words);
    });
    pairs_[key_of(pair.first, pair.second)].count = 0;
    // A new token is in new pairs only: the counts of all others became smaller.
    for (std::size_t i = num_pairs; i < pairs_.records().size(); ++i) {
      const auto& record = pairs_.records()[i];
      if (record.count > 0) queue_.push({record.count, record.key});
    }
  }

 private:
  /// Counts a pair of the made token, which is new and has these holders.
  void extend(PairKey key, std::int64_t count, std::size_t first, std::size_t num_words) {
    PairRecord& record = pairs_[key];
    record.count += count;
    record.first = first;
    record.num_words = num_words;
  }

  /// Begins to read the words that join_in is given some steps later: they are far from each other in memory.
  void load_ahead(std::size_t i, std::size_t end) const {
    constexpr std::size_t kWords = 16, kTokens = 8;
    if (i + kWords < end) __builtin_prefetch(&words_[holders_[i + kWords]]);
    if (i + kTokens < end) __builtin_prefetch(&tokens_[words_[holders_[i + kTokens]].first]);
  }

  /// Joins from left to right.
  void join_in(std::uint32_t number, const Merge& pair, Token made) {
    Word& word = words_[number];
    Token* const token = tokens_.data() + word.first;
    std::uint32_t end = 0;  // of the tokens that are done
    for (std::uint32_t i = 0; i < word.size; ++i) {
      if (i + 1 == word.size || token[i] != pair.first || token[i + 1] != pair.second) {
        token[end++] = token[i];
        continue;
      }
      if (end > 0) left_.add(token[end - 1], counts_[number], number);
      if (i + 2 < word.size) right_.add(token[i + 2], counts_[number], number);
      token[end++] = made;
      ++i;
    }
    word.size = end;
  }

  std::vector<Token> tokens_;
  std::vector<Word> words_;
  std::vector<std::int64_t> counts_;  ///< of each word
  PairTable pairs_;
  std::vector<std::uint32_t> holders_;  ///< the words of each pair, one pair after the other
  Neighbors left_, right_;              ///< of the pair that is being joined
  std::priority_queue<Queued> queue_;
};

}  // namespace

std::vector<Merge> learn_merges(std::span<const CountedPretoken> pretokens, int num_merges) {
  MergeLearner learner(pretokens);
  std::vector<Merge> merges;
  for (Merge pair; static_cast<int>(merges.size()) < num_merges && learner.best(pair);) {
    learner.join(pair, static_cast<Token>(256 + merges.size()));
    merges.push_back(pair);
  }
  return merges;
}

}  // namespace kozero::io
