// SPDX-FileCopyrightText: The KoZeRO authors
// SPDX-License-Identifier: Apache-2.0
// test_ladder.cpp: ZeRO stages 0, 1, 2 and 3 give the same bits of loss, gradient norm and weights.
// Seven ranks split into groups of 1, 2, 3, 4 and 7, so that one MPI program covers every rank count.
#include <catch2/catch_test_macros.hpp>

#include "groups.hpp"
#include "tiny_run.hpp"

using namespace kozero;
using tests::TinyResult;
using tests::TinyRun;

namespace {

/// The run's result on the first `num_ranks` ranks; an empty one elsewhere.
TinyResult result_on(int num_ranks, const std::string& backend, const TinyRun& run) {
  TinyResult result;
  tests::on_first_ranks(num_ranks, backend, [&](dist::Communicator& comm, MemoryLedger& ledger) {
    result = tests::TinyTraining(run, comm, ledger).result();
  });
  return result;
}

bool finite_and_falling(const TinyResult& result) {
  return result.losses.empty() || (result.losses.back() < result.losses.front() && result.norms.front() > 0.0);
}

void climb(TinyRun run, int num_ranks, const std::string& backend) {
  const TinyResult first = result_on(num_ranks, backend, run);
  CHECK(finite_and_falling(first));
  for (run.stage = 1; run.stage <= 3; ++run.stage) {
    INFO("stage " << run.stage << ", " << num_ranks << " ranks, " << run.micro_steps << " micro-steps, " << backend);
    CHECK(result_on(num_ranks, backend, run) == first);
  }
}

}  // namespace

TEST_CASE("all stages give the same bits") {
  for (const auto& model : {tests::tiny_gpt2(), tests::tiny_llama()}) {
    for (const int num_ranks : tests::group_sizes()) {
      for (const int micro_steps : {1, 3}) {
        climb({.model = model, .micro_steps = micro_steps}, num_ranks, num_ranks == 1 ? "self" : "mpi");
      }
    }
  }
}

TEST_CASE("tied Llama and untied GPT-2 climb too") {
  auto llama = tests::tiny_llama();
  llama.tie_embeddings = true;
  auto gpt2 = tests::tiny_gpt2();
  gpt2.tie_embeddings = false;
  for (const auto& model : {llama, gpt2}) climb({.model = model, .micro_steps = 2}, tests::group_sizes().back(), "mpi");
}

TEST_CASE("SGD with momentum climbs too") {
  climb({.model = tests::tiny_gpt2(), .optimizer = "sgd"}, tests::group_sizes().back(), "mpi");
}

TEST_CASE("mpi and shm give the same bits") {
  for (const int num_ranks : tests::group_sizes()) {
    if (num_ranks == 1) continue;
    const TinyRun run{.model = tests::tiny_gpt2(), .stage = 3, .micro_steps = 2};
    CHECK(result_on(num_ranks, "mpi", run) == result_on(num_ranks, "shm", run));
  }
}

TEST_CASE("with one micro-step both accumulation orders give the same bits") {
  TinyRun run{.model = tests::tiny_gpt2(), .stage = 1};
  const int num_ranks = tests::group_sizes().back();
  const TinyResult reduced = result_on(num_ranks, "mpi", run);
  run.accumulation = zero::Accumulation::local;
  CHECK(result_on(num_ranks, "mpi", run) == reduced);
}

TEST_CASE("local accumulation agrees over the stages that have it, and nearly with reduced") {
  TinyRun run{.model = tests::tiny_gpt2(), .accumulation = zero::Accumulation::local, .micro_steps = 3};
  const int num_ranks = tests::group_sizes().back();
  const TinyResult zero = result_on(num_ranks, "mpi", run);
  run.stage = 1;
  CHECK(result_on(num_ranks, "mpi", run) == zero);
  run.accumulation = zero::Accumulation::reduced;
  const TinyResult reduced = result_on(num_ranks, "mpi", run);
  for (std::size_t i = 0; i < zero.losses.size(); ++i) CHECK(std::abs(zero.losses[i] - reduced.losses[i]) < 1e-5);
}

TEST_CASE("a run repeats bit for bit") {
  const TinyRun run{.model = tests::tiny_llama(), .stage = 2, .micro_steps = 2};
  const int num_ranks = tests::group_sizes().back();
  CHECK(result_on(num_ranks, "mpi", run) == result_on(num_ranks, "mpi", run));
}

TEST_CASE("the first loss does not depend on the number of ranks, up to rounding") {
  std::vector<double> losses;
  for (const int num_ranks : tests::group_sizes()) {
    const TinyResult result = result_on(num_ranks, num_ranks == 1 ? "self" : "mpi", {.model = tests::tiny_gpt2()});
    if (!result.losses.empty()) losses.push_back(result.losses.front());
  }
  for (const double loss : losses) CHECK(std::abs(loss - losses.front()) < 1e-6);
}
