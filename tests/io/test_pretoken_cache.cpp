// SPDX-FileCopyrightText: The KoZeRO authors
// SPDX-License-Identifier: Apache-2.0
// test_pretoken_cache.cpp: what the cache of pretokens gives is what it was told, whatever it forgets; and encoders
// that share a tokenizer.
#include <catch2/catch_test_macros.hpp>

#include <array>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include "io/text/bpe_tokenizer.hpp"
#include "io/text/pretoken_cache.hpp"

namespace kozero::io {

namespace {

/// Tokens that follow from the text: any other pretoken's are wrong.
std::vector<Token> tokens_of(std::string_view pretoken) {
  std::vector<Token> tokens;
  Token sum = static_cast<Token>(pretoken.size());
  for (const char byte : pretoken) sum = (31 * sum + static_cast<unsigned char>(byte)) % 1000003;
  for (int i = 0; i <= sum % 9; ++i) tokens.push_back((sum + i) % 1000003);
  return tokens;
}

std::string random_pretoken(std::mt19937& random, std::size_t longest) {
  std::string text(1 + random() % longest, '\0');
  for (char& byte : text) byte = static_cast<char>(random() % 3);  // zero bytes too, which end no pretoken
  return text;
}

/// How many of the pretokens are in the cache; each must have its own tokens.
std::size_t num_known(const PretokenCache& cache, const std::vector<std::string>& pretokens) {
  std::size_t known = 0;
  for (const auto& text : pretokens) {
    std::array<Token, PretokenCache::kMaxTokens> found;
    const std::string readable = text + std::string(16, 'x');
    for (const bool may_read_16 : {false, true}) {
      const std::string_view pretoken = std::string_view(readable).substr(0, text.size());
      const std::size_t size = cache.find(pretoken, cache.place_of(pretoken, may_read_16), found.data());
      if (size == 0) continue;
      ++known;
      const std::vector<Token> tokens(found.begin(), found.begin() + static_cast<std::ptrdiff_t>(size));
      if (tokens != tokens_of(text)) CHECK(tokens == tokens_of(text));
    }
  }
  return known / 2;
}

}  // namespace

TEST_CASE("a cache finds the pretokens that it was given, and no other") {
  std::mt19937 random(5);
  PretokenCache cache;
  std::vector<std::string> told, untold;
  for (int i = 0; i < 5000; ++i) told.push_back(random_pretoken(random, 40));
  for (int i = 0; i < 5000; ++i) untold.push_back(random_pretoken(random, 40) + "\x07");
  for (const auto& text : told) cache.keep(text, tokens_of(text));
  CHECK(num_known(cache, told) > 4800);  // long ones of one hash take each other's place
  CHECK(num_known(cache, untold) == 0);
}

TEST_CASE("a cache that forgets gives no wrong tokens") {
  std::mt19937 random(6);
  PretokenCache cache;
  std::vector<std::string> latest;
  for (int i = 0; i < 1'000'000; ++i) {  // more than its table and its buffer have room for
    std::string text = random_pretoken(random, 30) + std::to_string(i);
    cache.keep(text, tokens_of(text));
    if (i % 100 == 0) latest.push_back(std::move(text));
  }
  CHECK(num_known(cache, latest) > latest.size() / 10);
  cache.keep(std::string(10000, 'a'), std::vector<Token>(10));
  cache.keep("many", std::vector<Token>(1000));
  CHECK(num_known(cache, {std::string(10000, 'a'), "many"}) == 0);
}

TEST_CASE("encoders of one tokenizer give the same tokens on all threads") {
  std::vector<CountedPretoken> pretokens = {{" the", 9}, {" then", 7}, {"other", 5}, {" 2024", 3}};
  const BpeTokenizer bpe(learn_merges(pretokens, 40), published_split("Llama 3"));
  std::mt19937 random(8);
  std::string text;
  for (int i = 0; i < 200000; ++i) text += " the then other 2024\n!it's"[random() % 26];
  const std::vector<Token> expected = bpe.encode(text);
  std::array<std::vector<Token>, 4> found;
  std::vector<std::thread> threads;
  for (auto& tokens : found) {
    threads.emplace_back([&] {
      const auto encoder = bpe.encoder();
      for (int turn = 0; turn < 3; ++turn) {
        tokens = {-7};
        encoder->encode(text, tokens);  // appended, the same from a warm cache
      }
    });
  }
  for (auto& thread : threads) thread.join();
  for (const auto& tokens : found) {
    REQUIRE(tokens.size() == expected.size() + 1);
    CHECK(tokens[0] == -7);
    CHECK(std::equal(expected.begin(), expected.end(), tokens.begin() + 1));
  }
}

}  // namespace kozero::io
