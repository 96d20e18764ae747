// SPDX-FileCopyrightText: The KoZeRO authors
// SPDX-License-Identifier: Apache-2.0
// test_answers.cpp: of shards of conversations, the targets that are tokens of answers count and no others, in windows
// of all tokens and in packed documents.
#include <catch2/catch_test_macros.hpp>
#include <catch2/generators/catch_generators.hpp>
#include <catch2/matchers/catch_matchers_string.hpp>

#include <array>
#include <filesystem>
#include <map>

#include <kozero/core/batch.hpp>
#include <kozero/data/data_set.hpp>
#include <kozero/data/prepare.hpp>
#include <kozero/distributed/communicator.hpp>
#include <support/scratch_folder.hpp>
#include <support/thrown.hpp>
#include "src/data/sources.hpp"

namespace kozero::data {

using Catch::Matchers::ContainsSubstring;
using tests::ScratchFolder;
using tests::thrown_by;
namespace fs = std::filesystem;

namespace {

/// Conversations of one or two turns in the plain template, as bytes: answers are of "!", and nothing else has this.
PreparedTokens prepared(const ScratchFolder& folder) {
  std::string lines;
  for (int i = 0; i < 60; ++i) {
    const std::string question(static_cast<std::size_t>(1 + i * 7 % 31), '?');
    const std::string answer(static_cast<std::size_t>(1 + i * 5 % 17), '!');
    const std::string turn =
        R"({"role": "user", "content": ")" + question + R"("}, {"role": "assistant", "content": ")" + answer + "\"}";
    lines += "{\"messages\": [" + turn + (i % 2 == 0 ? "" : ", " + turn) + "]}\n";
  }
  PrepareOrder order{{folder.put("a.jsonl", lines)}, "bytes", 0.0, folder / "out"};
  order.rules.chat_template = "plain";
  order.shard_tokens = 500;
  return prepare(order);
}

/// Whether each token is of an answer, told from the bytes alone: '!' and the end-of-text behind one.
std::vector<bool> answers_by_bytes(const TokenShards& shards) {
  std::vector<Token> tokens(static_cast<std::size_t>(shards.num_tokens()));
  shards.read(0, tokens);
  std::vector<bool> trained;
  for (std::size_t i = 0; i < tokens.size(); ++i) {
    trained.push_back(tokens[i] == '!' || (tokens[i] == 0 && i > 0 && tokens[i - 1] == '!'));
  }
  return trained;
}

/// The targets of a sample of `count` targets.
std::vector<Token> targets_of(const SampleSource& source, std::int64_t index, std::int64_t count) {
  std::vector<Token> window(static_cast<std::size_t>(count + 1));
  source.read(index, window);
  std::vector<Token> targets(window.begin() + 1, window.end());
  source.change_targets(index, targets);
  return targets;
}

std::int64_t ignored_in(const std::vector<Token>& targets) { return std::ranges::count(targets, kIgnoredTarget); }

constexpr std::int64_t kSeq = 37;

}  // namespace

TEST_CASE("windows of conversations: a target counts if it is a token of an answer") {
  const ScratchFolder folder("answers");
  const auto made = prepared(folder);
  REQUIRE(made.train.files.size() > 3);
  const bool is_repeated = GENERATE(false, true);
  const std::vector<std::size_t> order =
      is_repeated ? std::vector<std::size_t>{1, 0, 2, 1, 3, 4, 5, 6, 7, 8, 9} : std::vector<std::size_t>{};
  std::vector<std::string> files = made.train.files;
  if (is_repeated && files.size() < 10) return;
  if (is_repeated) files.resize(10);
  const auto shards = std::make_shared<const TokenShards>(files, made.vocab, order);
  const auto trained = answers_by_bytes(*shards);
  for (const std::int64_t first : {0, 5}) {
    const auto samples = token_samples(shards, kSeq, first, windows_of(shards->num_tokens(), kSeq) - first, 0);
    std::int64_t counted = 0;
    for (std::int64_t i = 0; i <= samples->num_samples(); ++i) {
      const std::int64_t count = i < samples->num_samples() ? kSeq : samples->tail();
      const auto targets = targets_of(*samples, i, count);
      CHECK(samples->ignored_targets(i) == ignored_in(targets));
      for (std::int64_t t = 0; t < count; ++t) {
        const auto position = static_cast<std::size_t>((first + i) * kSeq + t + 1);
        CHECK((targets[static_cast<std::size_t>(t)] != kIgnoredTarget) == trained[position]);
      }
      counted += count - ignored_in(targets);
    }
    CHECK(counted > 0);
    if (first == 0 && !is_repeated) CHECK(counted == made.train.trained);
  }
}

TEST_CASE("packed conversations: every token of an answer is a target once, and nothing else counts") {
  const ScratchFolder folder("packed_answers");
  const auto made = prepared(folder);
  const auto shards = std::make_shared<const TokenShards>(made.train.files, made.vocab);
  const auto samples = packed_samples(shards, kSeq, shards->documents(0), shards->num_tokens(), 0);
  std::map<Token, std::int64_t> counted;
  std::int64_t sum = 0;
  for (std::int64_t i = 0; i < samples->num_samples(); ++i) {
    const auto targets = targets_of(*samples, i, kSeq);
    CHECK(samples->ignored_targets(i) == ignored_in(targets));
    for (const Token target : targets) {
      if (target != kIgnoredTarget) ++counted[target];
    }
    sum += kSeq - ignored_in(targets);
  }
  CHECK(samples->ignored_targets(samples->num_samples()) == 0);
  CHECK(sum == made.train.trained);
  CHECK(counted[0] == 90);  // the ends of the answers
  CHECK(counted['!'] == made.train.trained - 90);
  CHECK(counted.size() == 2);
}

TEST_CASE("a plain conversation of several answers is one document, though each answer has an end-of-text token") {
  const ScratchFolder folder("plain_documents");
  const auto made = prepared(folder);
  const auto shards = std::make_shared<const TokenShards>(made.train.files, made.vocab);
  const auto samples = token_samples(shards, kSeq, 0, windows_of(shards->num_tokens(), kSeq), 0);
  std::vector<std::int64_t> found = {0};
  std::vector<Token> window(kSeq + 1);
  for (std::int64_t i = 0; i < samples->num_samples(); ++i) {
    samples->read(i, window);
    std::vector<std::int32_t> begins;
    samples->find_documents(i, std::span(window).first(kSeq), begins);
    for (const auto begin : begins) {
      CHECK(begin > 0);
      found.push_back(i * kSeq + begin);
    }
  }
  std::vector<std::int64_t> expected = {0};
  for (const auto begin : shards->documents(0)) {
    if (begin % kSeq != 0 && begin < samples->num_samples() * kSeq) expected.push_back(begin);
  }
  CHECK(found == expected);
}

TEST_CASE("a deck trains on conversations: their text or their shards, in windows or packed") {
  const ScratchFolder folder("chat_deck");
  const auto made = prepared(folder);
  const auto open = [&](std::vector<std::string> keys) {
    keys.insert(keys.end(), {"data.cache=" + (folder / "cache"), "data.tokenizer=bytes", "data.val_fraction=0"});
    const auto deck = io::parse_deck(
        "run.steps = 1\nmodel.layers = 1\nmodel.dim = 8\nmodel.heads = 2\nmodel.seq = 37\ntrain.global_batch = 1\n",
        "test.toml", keys);
    return open_data(deck, kSeq, *distributed::make_self_communicator());
  };
  const auto counted = [](const DataSet& data) {
    std::int64_t sum = data.train->tail() - data.train->ignored_targets(data.train->num_samples());
    for (std::int64_t i = 0; i < data.train->num_samples(); ++i) sum += kSeq - data.train->ignored_targets(i);
    return sum;
  };
  std::string files;
  for (const auto& file : made.train.files) files += (files.empty() ? "" : ", ") + ("\"" + file + "\"");
  const std::vector<std::string> text = {"data.text=" + (folder / "a.jsonl"), "data.chat_template=plain"};
  const std::vector<std::string> shards = {"data.tokens=[" + files + "]", "model.vocab=256"};
  for (auto keys : {text, shards}) {
    CHECK(counted(open(keys)) == made.train.trained);
    CHECK_THAT(open(keys).description, ContainsSubstring(" % of the targets are answers, which alone count"));
    keys.emplace_back("data.pack=best_fit");
    CHECK(counted(open(keys)) == made.train.trained);
  }
  CHECK_THAT(open({"data.text=" + folder.put("b.txt", std::string(500, 'b'))}).description,
             !ContainsSubstring("answers"));
  // Ranges of all tokens.
  const TokenShard shard(made.train.files.front(), made.vocab);
  const std::array<std::int64_t, 2> all = {0, shard.num_tokens()};
  folder.put("out/train_000000.bin.answers", std::string(reinterpret_cast<const char*>(all.data()), sizeof(all)));
  CHECK_THAT(thrown_by([&] {
               open({"data.tokens=" + shard.path(), "model.vocab=256"});
             }).text,
             ContainsSubstring("data.tokens: 500 of 500 tokens are trained on, 100 %"));
}

TEST_CASE("shards of conversations are not mixed with others") {
  const ScratchFolder folder("mixed");
  const auto made = prepared(folder);
  fs::remove(made.train.files.at(1) + ".answers");
  const TokenShards shards(made.train.files, made.vocab);
  CHECK_THAT(thrown_by([&] { return shards.answers(); }).text,
             ContainsSubstring("shards of conversations and of text are not mixed"));
  for (const auto& file : made.train.files) fs::remove(file + ".answers");
  CHECK(!shards.answers());
}

}  // namespace kozero::data
