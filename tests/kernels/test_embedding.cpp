// SPDX-FileCopyrightText: The KoZeRO authors
// SPDX-License-Identifier: Apache-2.0
// test_embedding.cpp: lookups and their gradients against plain loops, bit for bit, also with a vocabulary in blocks.
#include <algorithm>

#include <support/cut_documents.hpp>

#include "kernels/ops/embedding.hpp"

#include "reference.hpp"

namespace kozero::kernels {
namespace {

using reference::Filled;

constexpr std::int64_t kBatch = 11;
constexpr std::int64_t kPositions = 7;
constexpr std::int64_t kRows = kBatch * kPositions;
constexpr std::int64_t kVocabulary = 300;

/// Tokens with many repeats, including the first and the last of the vocabulary. Every third token is 5; some of the
/// others differ by a multiple of kTokenBuckets.
std::vector<Token> tokens() {
  std::vector<Token> ids;
  for (std::int64_t n = 0; n < kRows; ++n) ids.push_back(static_cast<Token>(n % 3 == 0 ? 5 : n * n % 37 * 8));
  ids.front() = 0;
  ids.back() = static_cast<Token>(kVocabulary - 1);
  return ids;
}

TEMPLATE_LIST_TEST_CASE("embedding and position forward look rows up and add them", "", reference::StoredTypes) {
  constexpr std::int64_t kChannels = 13;
  const std::vector<float> wte = reference::numbers<TestType>(kVocabulary * kChannels, 1);
  const std::vector<float> wpe = reference::numbers<TestType>(9 * kChannels, 2);
  const std::vector<Token> ids = tokens();
  const Filled<TestType> table(wte), positions_table(wpe), x(std::vector<float>(kRows * kChannels, 5.0F));
  const Filled<Token> device_tokens(ids);
  embedding_forward(Device(), x.matrix(kRows, kChannels), device_tokens.input(), table.input(kVocabulary, kChannels));
  position_forward(Device(), x.matrix(kRows, kChannels), positions_table.input(9, kChannels), kPositions);
  std::vector<float> expected;
  for (std::size_t n = 0; n < ids.size(); ++n) {
    for (std::size_t c = 0; c < kChannels; ++c) {
      expected.push_back(wte[static_cast<std::size_t>(ids[n]) * kChannels + c] + wpe[n % kPositions * kChannels + c]);
    }
  }
  CHECK(reference::same_bits(x.values(), reference::stored_as<TestType>(expected)));
}

TEMPLATE_LIST_TEST_CASE("embedding_backward adds rows in ascending order, the same bits as a plain loop", "",
                        reference::StoredTypes) {
  for (const std::int64_t channels : {13, 600}) {
    const std::vector<float> dx = reference::numbers<TestType>(kRows * channels, 3);
    const std::vector<Token> ids = tokens();
    std::vector<float> expected = reference::numbers(kVocabulary * channels, 4);
    const Filled<TestType> gradient(dx);
    const Filled<float> dwte(expected);
    const Filled<Token> device_tokens(ids);
    embedding_backward(Device(), dwte.matrix(kVocabulary, channels), gradient.input(kRows, channels),
                       device_tokens.input());
    const auto width = static_cast<std::size_t>(channels);
    for (std::size_t i = 0; i < dx.size(); ++i)
      expected[static_cast<std::size_t>(ids[i / width]) * width + i % width] += dx[i];
    CHECK(reference::same_bits(dwte.values(), expected));
  }
}

TEMPLATE_LIST_TEST_CASE("a vocabulary in blocks has the bits of the whole, forward and backward", "",
                        reference::StoredTypes) {
  constexpr std::int64_t kChannels = 13;
  const std::vector<float> wte = reference::numbers<TestType>(kVocabulary * kChannels, 1);
  const Filled<TestType> table(wte), whole(kRows * kChannels), parts(kRows * kChannels);
  const Filled<TestType> dx(reference::numbers<TestType>(kRows * kChannels, 3));
  const Filled<float> dwhole(reference::numbers(kVocabulary * kChannels, 4));
  const Filled<float> dparts(reference::numbers(kVocabulary * kChannels, 4));
  const Filled<Token> device_tokens(tokens());
  embedding_forward(Device(), whole.matrix(kRows, kChannels), device_tokens.input(),
                    table.input(kVocabulary, kChannels));
  embedding_backward(Device(), dwhole.matrix(kVocabulary, kChannels), dx.input(kRows, kChannels),
                     device_tokens.input());
  for (std::int64_t first = 0; first < kVocabulary; first += 64) {
    const std::int64_t rows = std::min<std::int64_t>(64, kVocabulary - first);
    const auto block = [&](const auto& all) {
      return as_matrix(slice(all, first * kChannels, rows * kChannels), rows, kChannels);
    };
    embedding_forward(Device(), parts.matrix(kRows, kChannels), device_tokens.input(), block(table.input()), first);
    embedding_backward(Device(), block(dparts.vector()), dx.input(kRows, kChannels), device_tokens.input(), first);
  }
  CHECK(reference::same_bits(parts.values(), whole.values()));
  CHECK(reference::same_bits(dparts.values(), dwhole.values()));
}

TEMPLATE_LIST_TEST_CASE("position_backward adds over the batch in ascending order and leaves later positions alone", "",
                        reference::StoredTypes) {
  constexpr std::int64_t kChannels = 13;
  const std::vector<float> dx = reference::numbers<TestType>(kRows * kChannels, 3);
  std::vector<float> expected = reference::numbers(9 * kChannels, 4);
  const Filled<TestType> gradient(dx);
  const Filled<float> dwpe(expected);
  position_backward(Device(), dwpe.matrix(9, kChannels), gradient.input(kRows, kChannels), kPositions);
  for (std::size_t i = 0; i < dx.size(); ++i) expected[i % (kPositions * kChannels)] += dx[i];
  CHECK(reference::same_bits(dwpe.values(), expected));
}

TEMPLATE_LIST_TEST_CASE("positions begin again at each document, forward and backward", "", reference::StoredTypes) {
  constexpr std::int64_t kChannels = 13;
  tests::DocumentLengths lengths(kBatch, {2, 1, 4});
  lengths.front() = {7};
  lengths.back() = {1, 5, 1};
  const tests::CutDocuments documents(lengths);
  const std::vector<float> wpe = reference::numbers<TestType>(9 * kChannels, 2);
  const std::vector<float> values = reference::numbers<TestType>(kRows * kChannels, 3);
  const Filled<TestType> table(wpe), x(values), gradient(values);
  position_forward_at(Device(), x.matrix(kRows, kChannels), table.input(9, kChannels),
                      GivenPositions{documents.view().positions});
  const Filled<float> dwpe(reference::numbers(9 * kChannels, 4));
  std::vector<double> expected_gradient = reference::in_double(dwpe.values());
  position_backward(Device(), dwpe.matrix(9, kChannels), gradient.input(kRows, kChannels), kPositions,
                    documents.view());
  std::vector<float> expected = values;
  for (std::size_t n = 0; n < kRows; ++n) {
    const std::size_t position = n % kPositions - static_cast<std::size_t>(documents.starts()[n]);
    for (std::size_t c = 0; c < kChannels; ++c) {
      expected[n * kChannels + c] += wpe[position * kChannels + c];
      expected_gradient[position * kChannels + c] += static_cast<double>(values[n * kChannels + c]);
    }
  }
  CHECK(reference::same_bits(x.values(), reference::stored_as<TestType>(expected)));
  reference::require_near(dwpe.values(), expected_gradient, 1e-5);
}

TEST_CASE("embedding kernels take no rows") {
  const Filled<float> none(0), table(std::vector<float>(kVocabulary * 13, 1.0F));
  const Filled<Token> no_tokens(0);
  embedding_forward(Device(), none.matrix(0, 13), no_tokens.input(), table.input(kVocabulary, 13));
  position_forward(Device(), none.matrix(0, 13), table.input(kVocabulary, 13), kPositions);
  embedding_backward(Device(), table.matrix(kVocabulary, 13), none.input(0, 13), no_tokens.input());
  position_backward(Device(), table.matrix(kVocabulary, 13), none.input(0, 13), kPositions);
  CHECK(table.values() == std::vector<float>(kVocabulary * 13, 1.0F));
}

}  // namespace
}  // namespace kozero::kernels
