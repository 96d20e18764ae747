// SPDX-FileCopyrightText: The KoZeRO authors
// SPDX-License-Identifier: Apache-2.0
// test_documents.cpp: a document packed with others equals the document alone, bit for bit, in every network: its
// losses, and the gradient of each of its tokens' embeddings.
// All tokens of the batch differ and embedding and head are not tied, so the row of a token in the embedding's gradient
// is the gradient of this token's embedding. A sum of a few hundred float losses in double is exact.
#include <catch2/catch_test_macros.hpp>
#include <catch2/generators/catch_generators.hpp>
#include <cmath>
#include <support/cut_documents.hpp>

#include "tiny_models.hpp"

namespace kozero::tests {
namespace {

constexpr std::int64_t kPositions = 104;
constexpr std::int64_t kSequences = 5;  // 520 rows: the head's last chunk would have 8
constexpr std::int64_t kTokens = kSequences * kPositions;
constexpr std::int64_t kFillers = 20;  // tokens beyond those of the batch

const DocumentLengths kLengths = {{37, 1, 45, 21}, {3, 70, 31}, {104}, {1, 1, 2, 99, 1}, {33, 64, 7}};

model::Config with_room(model::Config config) {
  config.seq = kPositions;
  config.vocab = kTokens + kFillers;
  return config;
}

Token target_of(std::int64_t token) { return static_cast<Token>((7 * token + 3) % (kTokens + kFillers)); }

struct Outcome {
  double loss = 0.0;
  std::vector<float> embedding;  // gradient
};

/// Each list is a sequence.
Outcome outcome_of(TinyModel& tiny, const std::vector<std::vector<Token>>& sequences, const Documents& documents = {}) {
  std::vector<Token> inputs, targets;
  for (const auto& sequence : sequences) {
    for (const Token token : sequence) {
      inputs.push_back(token);
      targets.push_back(target_of(token));
    }
  }
  const TokenBatch tokens(inputs, targets, static_cast<std::int64_t>(sequences.front().size()));
  model::Batch batch = tokens.view();
  batch.documents = documents;
  tiny.access.clear_gradients();
  Outcome outcome;
  outcome.loss = forward_backward(*tiny.model, tiny.access, batch, 1.0F);
  CHECK(tiny.model->evaluate(tiny.access, batch) == outcome.loss);
  outcome.embedding = tiny.access.gradient_of(0);
  return outcome;
}

std::vector<Token> tokens_from(std::int64_t first, std::int64_t count) {
  std::vector<Token> tokens;
  for (std::int64_t i = 0; i < count; ++i) tokens.push_back(static_cast<Token>(first + i));
  return tokens;
}

/// The document of tokens [first, first + count) as a sequence, beside sequences of fillers, if it is short: products
/// of at most 8 rows have other bits.
Outcome alone(TinyModel& tiny, std::int64_t first, std::int64_t count) {
  constexpr std::int64_t kMany = 9;  // rows
  std::vector<std::vector<Token>> fillers;
  for (std::int64_t i = 0; i < kMany && count < kMany; ++i) {
    fillers.emplace_back(static_cast<std::size_t>(count), static_cast<Token>(kTokens + i));
  }
  std::vector<std::vector<Token>> all = fillers;
  all.push_back(tokens_from(first, count));
  Outcome outcome = outcome_of(tiny, all);
  if (!fillers.empty()) outcome.loss -= outcome_of(tiny, fillers).loss;
  return outcome;
}

}  // namespace

TEST_CASE("a packed document has the bits of the document alone") {
  const auto recompute = GENERATE(model::Recompute{}, model::Recompute{.blocks = 1});
  for (const auto& config :
       {tiny_gpt2(false), tiny_llama(false), tiny_qwen2(false), tiny_qwen3(false), in_blocks(tiny_qwen3(false), 64)}) {
    INFO(config.arch << ", vocab_block " << config.vocab_block);
    TinyModel packed_model(with_room(config), kSequences, recompute), tiny(with_room(config), 10);
    REQUIRE(tiny.model->parameters().row(0).shape.front() >= 64);  // the table of tokens, or its first block
    const CutDocuments documents(kLengths);
    std::vector<std::vector<Token>> sequences;
    for (std::int64_t b = 0; b < kSequences; ++b) sequences.push_back(tokens_from(b * kPositions, kPositions));
    const Outcome packed = outcome_of(packed_model, sequences, documents.view());
    CHECK(packed.loss != outcome_of(packed_model, sequences).loss);

    double loss = 0.0;
    const std::int64_t width = config.dim;
    for (const DocumentSpan& span : documents.in_order()) {
      const std::int64_t first = span.sequence * kPositions + span.first;
      INFO("document of " << span.count << " tokens at position " << span.first << " of sequence " << span.sequence);
      const Outcome one = alone(tiny, first, span.count);
      loss += one.loss;
      const auto end =
          std::min<std::int64_t>((first + span.count) * width, static_cast<std::int64_t>(packed.embedding.size()));
      for (std::int64_t i = first * width; i < end; ++i) {
        const auto at = static_cast<std::size_t>(i);
        REQUIRE(packed.embedding[at] != 0.0F);
        REQUIRE(packed.embedding[at] == one.embedding[at]);
      }
    }
    CHECK(loss == packed.loss);
  }
}

TEST_CASE("the gradient of a learned position is the sum over the documents that reach it") {
  const model::Config config = with_room(tiny_gpt2(false));
  TinyModel tiny(config, kSequences);
  const CutDocuments documents(kLengths);
  std::vector<std::vector<Token>> sequences;
  for (std::int64_t b = 0; b < kSequences; ++b) sequences.push_back(tokens_from(b * kPositions, kPositions));
  const Outcome packed = outcome_of(tiny, sequences, documents.view());
  const auto width = static_cast<std::size_t>(config.dim);
  std::vector<double> expected(kPositions * width);
  for (const DocumentSpan& span : documents.in_order()) {
    const auto first = static_cast<std::size_t>(span.sequence * kPositions + span.first) * width;
    for (std::size_t i = 0; i < static_cast<std::size_t>(span.count) * width; ++i) {
      expected[i] += static_cast<double>(packed.embedding[first + i]);
    }
  }
  REQUIRE(tiny.model->parameters().row(1).name.find("wpe") != std::string::npos);
  const std::vector<float> positions = tiny.access.gradient_of(1);
  REQUIRE(positions.size() == expected.size());
  for (std::size_t i = 0; i < expected.size(); ++i) {
    REQUIRE(std::abs(static_cast<double>(positions[i]) - expected[i]) < 1e-4);
  }
}

TEST_CASE("documents of whole sequences have the bits of sequences without documents") {
  for (const auto& config : {tiny_gpt2(false), tiny_qwen3(false)}) {
    TinyModel tiny(with_room(config), 2);
    const std::vector<std::vector<Token>> sequences = {tokens_from(0, kPositions), tokens_from(kPositions, kPositions)};
    const Outcome whole = outcome_of(tiny, sequences);
    const CutDocuments documents({{kPositions}, {kPositions}});
    const Outcome cut = outcome_of(tiny, sequences, documents.view());
    CHECK(cut.loss == whole.loss);
    CHECK(cut.embedding == whole.embedding);
  }
}

}  // namespace kozero::tests
