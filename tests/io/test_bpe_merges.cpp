// SPDX-FileCopyrightText: The KoZeRO authors
// SPDX-License-Identifier: Apache-2.0
// test_bpe_merges.cpp: merges applied to pretokens and learned from them.
#include <catch2/catch_test_macros.hpp>

#include <algorithm>
#include <map>
#include <numeric>
#include <random>
#include <set>
#include <string>

#include "io/text/bpe_merges.hpp"
#include "io/text/bpe_tokenizer.hpp"

namespace kozero::io {

namespace {

using PretokenCounts = std::map<std::string, std::int64_t>;

std::vector<Merge> learned(const PretokenCounts& counts, int num_merges) {
  std::vector<CountedPretoken> pretokens;
  for (const auto& [text, count] : counts) pretokens.push_back({text, count});
  return learn_merges(pretokens, num_merges);
}

/// Merging by the definition: repeatedly applies the present merge with the lowest rank, from left to right.
std::vector<Token> merged_naively(const std::string& pretoken, const std::vector<Merge>& merges) {
  std::vector<Token> tokens;
  for (const char byte : pretoken) tokens.push_back(static_cast<unsigned char>(byte));
  for (std::size_t rank = 0; rank < merges.size(); ++rank) {
    for (std::size_t i = 0; i + 1 < tokens.size(); ++i) {
      if (tokens[i] != merges[rank].first || tokens[i + 1] != merges[rank].second) continue;
      tokens[i] = static_cast<Token>(256 + rank);
      tokens.erase(tokens.begin() + static_cast<std::ptrdiff_t>(i) + 1);
    }
  }
  return tokens;
}

/// The rules of learned merges: merge r makes id 256 + r.
MergeRules rules_of(const std::vector<Merge>& merges) {
  ByteIds bytes{};
  std::iota(bytes.begin(), bytes.end(), 0);
  std::vector<MergeRule> rules;
  for (const auto& [left, right] : merges) rules.push_back({left, right, static_cast<Token>(256 + rules.size())});
  return MergeRules(bytes, rules);
}

/// Words of three letters.
std::string random_word(std::mt19937& random, std::size_t size) {
  std::string word(size, 'a');
  for (char& letter : word) letter = static_cast<char>('a' + random() % 3);
  return word;
}

PretokenCounts random_words(unsigned seed) {
  std::mt19937 random(seed);
  PretokenCounts pretokens;
  for (int i = 0; i < 400; ++i) pretokens[random_word(random, 1 + random() % 9)] += 1 + random() % 3;
  return pretokens;
}

/// Learning by the definition: counts all pairs again for each merge.
std::vector<Merge> learned_naively(const PretokenCounts& counts, int num_merges) {
  std::vector<Merge> merges;
  while (static_cast<int>(merges.size()) < num_merges) {
    std::map<Merge, std::int64_t> pairs;
    for (const auto& [text, count] : counts) {
      const auto tokens = merged_naively(text, merges);
      for (std::size_t i = 0; i + 1 < tokens.size(); ++i) pairs[{tokens[i], tokens[i + 1]}] += count;
    }
    const auto best =
        std::max_element(pairs.begin(), pairs.end(), [](const auto& a, const auto& b) { return a.second < b.second; });
    if (best == pairs.end() || best->second < 2) break;
    merges.push_back(best->first);
  }
  return merges;
}

}  // namespace

TEST_CASE("merges are learned by count, ties by the smaller ids") {
  const auto merges = learned({{"abab", 3}, {"cd", 6}, {"x", 99}, {"yz", 1}}, 10);
  REQUIRE(merges.size() == 3);  // ab and cd occur 6 times, then (ab)(ab) 3 times; yz only once
  CHECK(merges[0] == Merge{'a', 'b'});
  CHECK(merges[1] == Merge{'c', 'd'});
  CHECK(merges[2] == Merge{256, 256});
}

TEST_CASE("a vocabulary never holds a token twice") {
  std::mt19937 random(13);
  PretokenCounts pretokens;  // of two letters and runs, for which several merges most likely make one token
  for (int i = 0; i < 3000; ++i) {
    std::string pretoken;
    for (unsigned n = 1 + random() % 14; n > 0; --n) pretoken.append(1 + random() % 3, random() % 2 == 0 ? 'a' : 'b');
    ++pretokens[pretoken];
  }
  const BpeTokenizer bpe(learned(pretokens, 3000), published_split(""));
  CHECK(bpe.vocab_size() > 900);
  std::set<std::string> seen;
  for (Token id = 0; id < bpe.vocab_size(); ++id) CHECK(seen.insert(bpe.decode(std::vector<Token>{id})).second);
}

TEST_CASE("merges are learned as the definition learns them") {
  for (const unsigned seed : {1U, 2U, 3U}) {
    const auto counts = random_words(seed);
    CHECK(learned(counts, 150) == learned_naively(counts, 150));
  }
  const PretokenCounts runs = {{"aaaaaaa", 3}, {"aaaa", 2}, {"abababa", 2}, {"baab", 1}};
  CHECK(learned(runs, 30) == learned_naively(runs, 30));
}

TEST_CASE("pretokens of every length are merged as the definition merges them") {
  std::mt19937 random(11);
  const auto merges = learned(random_words(11), 60);
  const MergeRules rules = rules_of(merges);
  for (int i = 0; i < 300; ++i) {
    const std::string pretoken = random_word(random, i % 2 == 0 ? random() % 30 : 100 + random() % 60);
    std::vector<Token> tokens;
    rules.apply(pretoken, tokens);
    REQUIRE(tokens == merged_naively(pretoken, merges));
  }
}

TEST_CASE("the work of merging grows with the text, not with its square") {
  const auto merges = learned({{std::string(4096, 'a'), 2}, {"abab", 3}}, 40);
  const MergeRules rules = rules_of(merges);
  for (const std::string& text : {std::string(1 << 20, 'a'), std::string((1 << 20) - 1, 'a') + "b"}) {
    std::vector<Token> tokens;
    CHECK(rules.apply(text, tokens) <= std::int64_t{3} << 20);
  }
}

}  // namespace kozero::io
