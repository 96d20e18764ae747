// SPDX-FileCopyrightText: The KoZeRO authors
// SPDX-License-Identifier: Apache-2.0
// test_batch_loader.cpp: the places of a sample's tokens and id in a batch, and its documents.
#include <algorithm>
#include <array>
#include <catch2/catch_test_macros.hpp>

#include <kozero/core/error.hpp>
#include <kozero/data/batch_loader.hpp>

using namespace kozero;
using data::BatchLoader;

namespace {

constexpr std::int64_t kSeq = 3;

/// Sample s has the tokens 10 s, 10 s + 1 ...
class CountedSamples final : public data::SampleSource {
 public:
  [[nodiscard]] std::int64_t num_samples() const override { return 100; }
  void read(std::int64_t index, std::span<Token> window) const override {
    for (std::size_t t = 0; t < window.size(); ++t) window[t] = static_cast<Token>(10 * index + static_cast<int>(t));
  }
};

/// Samples of given tokens, whose documents begin with 0.
class GivenSamples final : public data::SampleSource {
 public:
  explicit GivenSamples(std::vector<std::vector<Token>> samples, std::int64_t tail = 0)
      : samples_(std::move(samples)), tail_(tail) {}
  [[nodiscard]] std::int64_t num_samples() const override { return static_cast<std::int64_t>(samples_.size()) - 1; }
  [[nodiscard]] std::int64_t tail() const override { return tail_; }
  void read(std::int64_t index, std::span<Token> window) const override {
    const auto& tokens = samples_[static_cast<std::size_t>(index)];
    std::copy(tokens.begin(), tokens.end(), window.begin());
  }
  [[nodiscard]] Token document_start() const override { return 0; }

 private:
  std::vector<std::vector<Token>> samples_;
  std::int64_t tail_;
};

/// (sequence, first, count, before) of each document.
std::vector<std::array<std::int32_t, 4>> spans_of(const Documents& documents) {
  std::vector<std::array<std::int32_t, 4>> spans;
  for (std::size_t i = 0; i < documents.spans.extent(0); ++i) {
    const DocumentSpan& span = documents.spans(i);
    spans.push_back({span.sequence, span.first, span.count, span.before});
  }
  return spans;
}

std::vector<std::int32_t> positions_of(const Documents& documents) {
  return {documents.positions.data(), documents.positions.data() + documents.positions.extent(0)};
}

}  // namespace

TEST_CASE("documents begin at their first token and with each sample; the longest come first") {
  MemoryLedger ledger;
  BatchLoader loader(3, 6, ledger, 1, true);
  // The last token of a sample is a target only.
  const GivenSamples source({{5, 6, 0, 7, 8, 9, 0}, {0, 0, 1, 2, 0, 3, 4}, {1, 2, 3, 4, 5, 6, 7}, {4, 0, 0, 0}}, 3);
  const auto batch = loader.load(source, {{.sample = 0}, {.sample = 1}, {.sample = 2}});
  CHECK(spans_of(batch.documents) ==
        std::vector<std::array<std::int32_t, 4>>{
            {2, 0, 6, 0}, {0, 2, 4, 6}, {1, 1, 3, 10}, {0, 0, 2, 13}, {1, 4, 2, 15}, {1, 0, 1, 17}});
  CHECK(positions_of(batch.documents) ==
        std::vector<std::int32_t>{0, 1, 0, 1, 2, 3, 0, 0, 1, 2, 0, 1, 0, 1, 2, 3, 4, 5});
  CHECK(batch.documents.longest == 6);

  const auto tail = loader.load_tail(source);
  CHECK(spans_of(tail.documents) == std::vector<std::array<std::int32_t, 4>>{{0, 0, 1, 0}, {0, 1, 1, 1}, {0, 2, 1, 2}});
  CHECK_FALSE(loader.load(source, {}).documents.given());
}

TEST_CASE("documents are found only if they are masked, and only in a source that marks them") {
  MemoryLedger ledger;
  BatchLoader plain(1, kSeq, ledger), masking(1, kSeq, ledger, 1, true);
  CHECK_FALSE(plain.load(GivenSamples({{0, 1, 0, 1}}), {{}}).documents.given());
  CHECK_THROWS_AS(masking.load(CountedSamples(), {{}}), Error);
}

TEST_CASE("targets are the inputs' next tokens, and ids name epoch and sample, not the row") {
  MemoryLedger ledger;
  BatchLoader loader(3, kSeq, ledger);
  const auto batch = loader.load(CountedSamples(), {{.epoch = 2, .sample = 7}, {.epoch = 2, .sample = 4}});
  REQUIRE(batch.num_sequences() == 2);
  for (std::int64_t t = 0; t < kSeq; ++t) {
    CHECK(batch.inputs(0, t) == 70 + t);
    CHECK(batch.targets(0, t) == 71 + t);
    CHECK(batch.inputs(1, t) == 40 + t);
    CHECK(batch.targets(1, t) == 41 + t);
  }
  CHECK(batch.sample_ids(0) == (std::uint64_t{2} << 40U) + 7);
  CHECK(batch.sample_ids(1) == (std::uint64_t{2} << 40U) + 4);
}

TEST_CASE("a batch may be empty, but not larger than was reserved") {
  MemoryLedger ledger;
  BatchLoader loader(1, kSeq, ledger);
  CHECK(loader.load(CountedSamples(), {}).num_sequences() == 0);
  CHECK_THROWS_AS(loader.load(CountedSamples(), {{}, {}}), Error);
}

TEST_CASE("a planned loader books what a real one takes, and takes nothing") {
  MemoryLedger real, plan(MemoryLedger::Mode::plan);
  const BatchLoader loader(2, kSeq, real), planned(2, kSeq, plan);
  CHECK(plan.total() == real.total());
  const std::int64_t plain = real.total();
  const BatchLoader masking(2, kSeq, real, 1, true), masking_planned(2, kSeq, plan, 1, true);
  CHECK(plan.total() == real.total());
  CHECK(real.total() > 2 * plain);
  const BatchLoader vast(std::int64_t{1} << 24, std::int64_t{1} << 24, plan);
  CHECK(plan.total() > std::int64_t{1} << 50);
}
