// SPDX-FileCopyrightText: The KoZeRO authors
// SPDX-License-Identifier: Apache-2.0
// test_packed_samples.cpp: documents packed by best fit: each token is a target once, few documents are cut, and the
// rows are those of a plain search.
#include <algorithm>
#include <catch2/catch_test_macros.hpp>
#include <filesystem>
#include <map>
#include <numeric>

#include <kozero/core/batch.hpp>
#include <kozero/core/random.hpp>
#include <support/scratch_folder.hpp>
#include "src/data/sources.hpp"

using namespace kozero;
using data::SampleSource;
using data::TokenShards;

namespace {

constexpr Token kStart = 0;

/// A corpus in which no two tokens are equal but those that begin documents.
struct Corpus {
  std::vector<std::vector<Token>> documents;
  std::vector<Token> tokens;
  std::vector<std::int64_t> begins;

  explicit Corpus(const std::vector<std::int64_t>& lengths) {
    Token next = 1;
    for (const auto length : lengths) {
      begins.push_back(std::ssize(tokens));
      documents.emplace_back(static_cast<std::size_t>(length), kStart);
      std::iota(documents.back().begin() + 1, documents.back().end(), next);
      next += static_cast<Token>(length - 1);
      tokens.insert(tokens.end(), documents.back().begin(), documents.back().end());
    }
  }
  /// In shards of 100 tokens.
  [[nodiscard]] std::shared_ptr<const TokenShards> shards(const tests::ScratchFolder& folder) const {
    std::vector<std::string> paths;
    constexpr std::size_t kTokens = 100;
    for (std::size_t first = 0; first < tokens.size(); first += kTokens) {
      paths.push_back(folder / ("shard_" + std::to_string(paths.size()) + ".bin"));
      data::TokenShardWriter writer(paths.back(), kVocab);
      writer.append(std::span(tokens).subspan(first, std::min(kTokens, tokens.size() - first)));
      writer.close();
    }
    return std::make_shared<const TokenShards>(paths, kVocab);
  }
  static constexpr std::int64_t kVocab = 1'000'000;
};

std::vector<std::int64_t> random_lengths(std::int64_t count, std::int64_t most) {
  std::vector<std::int64_t> lengths;
  for (std::int64_t i = 0; i < count; ++i) {
    const auto word = philox(41, counter_of(static_cast<std::uint64_t>(i), 0)).x[0];
    lengths.push_back(2 + static_cast<std::int64_t>(word % static_cast<std::uint32_t>(most - 1)));
  }
  return lengths;
}

struct Row {
  std::vector<Token> inputs, targets;
  std::vector<std::int32_t> begins;
};

Row row_of(const SampleSource& source, std::int64_t index, std::int64_t seq) {
  std::vector<Token> window(static_cast<std::size_t>(seq + 1));
  source.read(index, window);
  Row row{{window.begin(), window.end() - 1}, {window.begin() + 1, window.end()}, {}};
  source.change_targets(index, row.targets);
  source.find_documents(index, row.inputs, row.begins);
  return row;
}

std::unique_ptr<SampleSource> packed(const Corpus& corpus, const tests::ScratchFolder& folder, std::int64_t seq) {
  return data::packed_samples(corpus.shards(folder), seq, corpus.begins, std::ssize(corpus.tokens), kStart);
}

/// Tokens in each row by the rule as written: every row is searched for the least room that is enough.
std::vector<std::int64_t> plain_best_fit(const Corpus& corpus, std::int64_t seq) {
  std::vector<std::int64_t> filled, rests;
  for (const auto& document : corpus.documents) {
    filled.insert(filled.end(), document.size() / static_cast<std::size_t>(seq), seq);
    const auto rest = std::ssize(document) % seq;
    if (rest > 0) rests.push_back(rest);
  }
  std::ranges::sort(rests, std::greater());
  for (const auto rest : rests) {
    std::int64_t* best = nullptr;
    for (auto& row : filled) {
      if (row + rest <= seq && (best == nullptr || row > *best)) best = &row;
    }
    best == nullptr ? filled.push_back(rest) : void(*best += rest);
  }
  return filled;
}

}  // namespace

TEST_CASE("packed documents: every token is a target once, the end of a document too, and nothing else is") {
  const tests::ScratchFolder folder("packed");
  for (const std::int64_t seq : {8, 33, 300}) {
    const Corpus corpus(random_lengths(200, 50));
    const auto source = packed(corpus, folder, seq);
    std::map<std::pair<Token, Token>, int> expected, found;  // input and target
    for (const auto& document : corpus.documents) {
      for (std::size_t i = 1; i < document.size(); ++i) ++expected[{document[i - 1], document[i]}];
      ++expected[{document.back(), kStart}];
    }
    for (std::int64_t index = 0; index < source->num_samples(); ++index) {
      const Row row = row_of(*source, index, seq);
      for (std::size_t t = 0; t < row.inputs.size(); ++t) {
        if (row.targets[t] != kIgnoredTarget) ++found[{row.inputs[t], row.targets[t]}];
      }
      CHECK(std::ranges::count(row.targets, kIgnoredTarget) == source->ignored_targets(index));
    }
    CHECK(found == expected);
    CHECK(source->tail() == 0);
  }
}

TEST_CASE("packed documents: the rows are those of a plain search, and only documents of T tokens and more are cut") {
  const tests::ScratchFolder folder("packed_rows");
  constexpr std::int64_t kSeq = 40;
  const Corpus corpus(random_lengths(300, 90));
  const auto source = packed(corpus, folder, kSeq);
  std::vector<std::int64_t> filled;
  std::map<Token, std::size_t> document_of;  // by a token that is not its first
  for (std::size_t i = 0; i < corpus.documents.size(); ++i) document_of[corpus.documents[i][1]] = i;
  std::size_t whole = 0;
  for (std::int64_t index = 0; index < source->num_samples(); ++index) {
    const Row row = row_of(*source, index, kSeq);
    filled.push_back(kSeq - source->ignored_targets(index));
    auto begins = row.begins;
    begins.insert(begins.begin(), 0);
    begins.push_back(kSeq);
    for (std::size_t i = 0; i + 1 < begins.size(); ++i) {
      if (begins[i] == filled.back()) continue;  // the places behind the last piece
      const std::vector<Token> piece(row.inputs.begin() + begins[i], row.inputs.begin() + begins[i + 1]);
      if (piece.size() < 2 || piece[0] != kStart) continue;
      const auto& document = corpus.documents[document_of.at(piece[1])];
      if (piece == document) ++whole;
      CHECK((piece == document || document.size() > static_cast<std::size_t>(kSeq)));
    }
  }
  CHECK(whole == static_cast<std::size_t>(std::ranges::count_if(
                     corpus.documents, [](const auto& document) { return std::ssize(document) <= kSeq; })));
  auto plain = plain_best_fit(corpus, kSeq);
  std::ranges::sort(plain);
  std::ranges::sort(filled);
  CHECK(filled == plain);
}

TEST_CASE("documents begin where a shard records it, or at each end-of-text token") {
  const tests::ScratchFolder folder("packed_begins");
  const Corpus corpus(random_lengths(40, 30));
  const auto shards = corpus.shards(folder);
  CHECK(shards->documents(kStart) == corpus.begins);
  // A recorded list is believed: here one without the shard's first document.
  const std::vector<std::uint64_t> recorded = {static_cast<std::uint64_t>(corpus.begins[1])};
  folder.put("shard_0.bin.documents", std::string(reinterpret_cast<const char*>(recorded.data()), 8));
  const auto found = shards->documents(kStart);
  CHECK(std::vector(found.begin(), found.begin() + 2) == std::vector<std::int64_t>{0, corpus.begins[1]});
  CHECK(found[2] > 100);
  const std::string first = shards->shards()[0].path();
  const TokenShards twice({first}, Corpus::kVocab, {0, 0});
  CHECK(twice.documents(kStart) == std::vector<std::int64_t>{0, corpus.begins[1], 100 + corpus.begins[1]});
}
