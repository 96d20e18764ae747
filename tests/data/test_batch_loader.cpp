// SPDX-FileCopyrightText: The KoZeRO authors
// SPDX-License-Identifier: Apache-2.0
// test_batch_loader.cpp: the places of a sample's tokens and id in a batch.
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

}  // namespace

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
  const BatchLoader vast(std::int64_t{1} << 24, std::int64_t{1} << 24, plan);
  CHECK(plan.total() > std::int64_t{1} << 50);
}
