// SPDX-FileCopyrightText: The KoZeRO authors
// SPDX-License-Identifier: Apache-2.0
// test_evaluation.cpp: the mean loss over samples and log-likelihoods of sequences, for any division among ranks; an
// evaluation does not change training.
#include <algorithm>
#include <catch2/catch_test_macros.hpp>
#include <cmath>
#include <set>

#include <kozero/distributed/agreement.hpp>
#include <kozero/train/evaluation.hpp>
#include <kozero/train/likelihood.hpp>

#include "groups.hpp"
#include "tiny_run.hpp"

using namespace kozero;
using tests::TinyRun;
using tests::TinyTraining;

namespace {

train::Evaluation evaluation_of(TinyTraining& training, std::int64_t max_samples) {
  return train::evaluate(training.engine(), training.source(), max_samples);
}

}  // namespace

TEST_CASE("the same mean on any rank count and under every stage, with uneven and empty shares") {
  for (const std::int64_t max_samples : {0, 1, 5}) {
    std::vector<double> losses;
    tests::on_each_group("mpi", [&](distributed::Communicator& comm) {
      for (const int stage : {0, 3}) {
        MemoryLedger ledger;
        TinyTraining training({.model = tests::tiny_gpt2(), .stage = stage}, comm, ledger);
        const auto evaluation = evaluation_of(training, max_samples);
        CHECK(evaluation.targets == (max_samples == 0 ? 12 : max_samples) * 7);
        losses.push_back(evaluation.loss);
      }
    });
    for (const double loss : losses) CHECK(std::abs(loss - losses.front()) < 1e-6);
    if (!losses.empty()) CHECK(std::abs(losses.front() - std::log(37.0)) < 0.2);
  }
}

TEST_CASE("samples of an evaluation are spread evenly, in order, and are all of them where all are asked for") {
  for (const std::int64_t total : {1, 2, 7, 12, 1001}) {
    for (std::int64_t count = 1; count <= std::min<std::int64_t>(total, 60); ++count) {
      std::int64_t before = -1;
      for (std::int64_t i = 0; i < count; ++i) {
        const std::int64_t sample = train::spread_sample(i, count, total);
        CHECK(sample == (2 * i + 1) * total / (2 * count));
        CHECK(sample > before);
        before = sample;
      }
      CHECK(before < total);
    }
    CHECK(train::spread_sample(total - 1, total, total) == total - 1);
  }
  constexpr std::int64_t kMany = std::int64_t{1} << 40;  // its square exceeds 64 bits
  CHECK(train::spread_sample(kMany / 2 - 1, kMany / 2, kMany) == kMany - 1);
}

TEST_CASE("an evaluation of a part reads samples from the whole set, on any rank count") {
  /// Samples that record which of them were read.
  class Noted final : public data::SampleSource {
   public:
    [[nodiscard]] std::int64_t num_samples() const override { return 100; }
    void read(std::int64_t index, std::span<Token> window) const override {
      read_.insert(index);
      std::fill(window.begin(), window.end(), static_cast<Token>(index % 37));
    }
    mutable std::set<std::int64_t> read_;
  };
  tests::on_each_group("mpi", [](distributed::Communicator& comm) {
    MemoryLedger ledger;
    TinyTraining training({.model = tests::tiny_gpt2()}, comm, ledger);
    const Noted source;
    CHECK(train::evaluate(training.engine(), source, 5).targets == 5 * 7);
    const std::set<std::int64_t> all = {10, 30, 50, 70, 90};
    for (const auto index : source.read_) CHECK(all.contains(index));
    const double mine = static_cast<double>(source.read_.size());
    double sum = 0.0;
    for (const double count : distributed::from_all_ranks(comm, mine)) sum += count;
    CHECK(sum == 5.0);
  });
}

TEST_CASE("the tail counts where all samples do: its targets, once, whatever the rank count") {
  tests::on_each_group("mpi", [](distributed::Communicator& comm) {
    MemoryLedger ledger;
    TinyTraining training({.model = tests::tiny_gpt2(), .stage = 3}, comm, ledger);
    const tests::NoiseSamples whole(4, 37), tailed(4, 37, 3), only_tail(0, 37, 3);
    const auto without = train::evaluate(training.engine(), whole, 0);
    CHECK(train::evaluate(training.engine(), tailed, 3).targets == 3 * 7);
    const auto with = train::evaluate(training.engine(), tailed, 4);
    CHECK(with.targets == 4 * 7 + 3);
    const double tail_loss = with.loss * 31 - without.loss * 28;
    CHECK(tail_loss > 0.0);
    const auto short_text = train::evaluate(training.engine(), only_tail, 0);
    CHECK(short_text.targets == 3);
    CHECK(std::abs(short_text.loss - std::log(37.0)) < 0.5);
    CHECK(std::abs(tail_loss / 3 - std::log(37.0)) < 0.5);
  });
}

TEST_CASE("evaluation knows no dropout, and the next training step is as without it") {
  tests::on_first_ranks(tests::group_sizes().back(), "mpi", [](distributed::Communicator& comm) {
    const TinyRun run{.model = tests::tiny_gpt2(), .stage = 3, .micro_steps = 2};
    TinyRun without_dropout = run;
    without_dropout.model.dropout = 0.0F;
    MemoryLedger ledger, other_ledger;
    TinyTraining training(run, comm, ledger), other(without_dropout, comm, other_ledger);
    CHECK(evaluation_of(training, 0).loss == evaluation_of(other, 0).loss);

    MemoryLedger plain_ledger;
    TinyTraining plain(run, comm, plain_ledger);
    for (const std::int64_t step : {1, 2, 3}) {
      evaluation_of(training, 5);
      CHECK(training.engine().step(step).loss == plain.engine().step(step).loss);
    }
    CHECK(training.my_weights() == plain.my_weights());
  });
}

TEST_CASE("log-likelihoods count the scored tokens alone, with the same bits on any rank count and in any company") {
  const std::vector<data::ScoredTokens> texts = {
      {{3, 30, 7, 1}, 1}, {{3, 30, 7, 1}, 3}, {{1, 2, 3, 4, 5, 6, 7, 8}, 7}, {{9, 36}, 1}, {{3, 30, 7}, 2}};
  std::vector<std::vector<double>> found;
  tests::on_each_group("mpi", [&](distributed::Communicator& comm) {
    for (const int stage : {0, 3}) {
      for (const std::size_t count : {texts.size(), std::size_t{2}}) {
        MemoryLedger ledger;
        TinyTraining training({.model = tests::tiny_llama(), .stage = stage}, comm, ledger);
        std::vector<data::ScoredTokens> mine;
        for (auto i = static_cast<std::size_t>(comm.rank()); i < count; i += static_cast<std::size_t>(comm.size())) {
          mine.push_back(texts[i]);
        }
        CHECK(mine.size() == train::sequences_of_rank(count, comm));
        found.push_back(train::log_likelihoods(training.engine(), mine, count));
      }
    }
  });
  for (const auto& each : found) {
    CHECK(each == std::vector<double>(found.front().begin(), found.front().begin() + std::ssize(each)));
  }
  if (found.empty()) return;
  const std::vector<double>& all = found.front();
  // Each token's loss is near log V; the losses of a text add up.
  for (std::size_t i = 0; i < texts.size(); ++i) {
    CHECK(std::abs(-all[i] / static_cast<double>(texts[i].scored) - std::log(37.0)) < 0.5);
  }
  CHECK(std::abs(all[4] + all[0] - all[1]) < 1e-5);
}
