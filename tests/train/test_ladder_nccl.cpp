// SPDX-FileCopyrightText: The KoZeRO authors
// SPDX-License-Identifier: Apache-2.0
// test_ladder_nccl.cpp: training with nccl, on the tests' mock, gives the bits of mpi. test_ladder.cpp compares the
// stages under mpi. Random sleeps on both streams make a missing wait visible.
#include <catch2/catch_test_macros.hpp>

#include <support/nccl_mock.hpp>

#include <optional>

#include "groups.hpp"
#include "tiny_run.hpp"

using namespace kozero;
using tests::TinyResult;
using tests::TinyRun;

TEST_CASE("nccl gives the bits of mpi in every stage, whichever stream is late") {
  const tests::NcclMock nccl;
  const tests::Variable delays("KOZERO_STREAM_DELAY_US", "300");
  const auto result_of = [](const TinyRun& run, distributed::Communicator& comm) {
    MemoryLedger ledger;
    return tests::TinyTraining(run, comm, ledger).result();
  };
  for (const int num_ranks : {2, 4}) {
    for (const auto precision : {Precision::f32, Precision::bf16}) {
      TinyRun run{.model = tests::tiny_gpt2(), .precision = precision, .micro_steps = 2};
      TinyResult by_mpi;
      tests::on_first_ranks(num_ranks, "mpi", [&](distributed::Communicator& comm) { by_mpi = result_of(run, comm); });
      tests::on_first_ranks(num_ranks, "nccl", [&](distributed::Communicator& comm) {
        for (run.stage = 0; run.stage <= 3; ++run.stage) {
          INFO("stage " << run.stage << ", " << comm.size() << " ranks");
          CHECK(result_of(run, comm) == by_mpi);
        }
      });
    }
  }
}

TEST_CASE("with comm.exact nccl gives the bits of mpi with more units than collectives may be under way") {
  const tests::NcclMock nccl;
  const tests::Variable delays("KOZERO_STREAM_DELAY_US", "100");
  TinyRun run{.model = tests::in_blocks(tests::tiny_gpt2(), 8), .stage = 3, .micro_steps = 3, .global_batch = 6};
  run.model.vocab = 257;
  run.model.layers = 3;
  run.model.blocks_in_unit = 2;
  const distributed::CommunicatorOptions options{
      .under_way = zero::collectives_under_way(run.prefetch_units), .exact = true, .exact_bytes = 4096};
  TinyResult by_mpi;
  const auto result_of = [&](distributed::Communicator& comm) {
    MemoryLedger ledger;
    return tests::TinyTraining(run, comm, ledger).result();
  };
  tests::on_first_ranks(
      2, "mpi", [&](distributed::Communicator& comm) { by_mpi = result_of(comm); }, options);
  tests::on_first_ranks(
      2, "nccl", [&](distributed::Communicator& comm) { CHECK(result_of(comm) == by_mpi); }, options);
}

TEST_CASE("with comm.exact nccl gives the bits of one rank on any number of ranks, with idle ranks too") {
  const tests::NcclMock nccl;
  const tests::Variable delays("KOZERO_STREAM_DELAY_US", "100");
  distributed::CommunicatorOptions exact{.exact = true, .exact_bytes = 4096};
  for (const auto precision : {Precision::f32, Precision::bf16}) {
    TinyRun run{.model = tests::tiny_gpt2(), .precision = precision, .micro_batch = 2, .global_batch = 10};
    std::optional<TinyResult> first;
    for (const int num_ranks : {1, 2, 3, 4}) {
      const auto check = [&](distributed::Communicator& comm) {
        CHECK(comm.adds_in_order());
        for (run.stage = 0; run.stage <= 3; ++run.stage) {
          MemoryLedger ledger;
          const TinyResult result = tests::TinyTraining(run, comm, ledger).result();
          if (!first) first = result;
          INFO("stage " << run.stage << ", " << comm.size() << " ranks");
          CHECK(result.losses == first->losses);
          CHECK(result.norms == first->norms);
        }
      };
      tests::on_first_ranks(num_ranks, "nccl", check, exact);
    }
  }
}

TEST_CASE("groups of ranks by nccl: with comm.exact the bits of one rank, else in NCCL's order, on every group") {
  const tests::NcclMock nccl;
  const tests::Variable delays("KOZERO_STREAM_DELAY_US", "100");
  for (const bool is_exact : {true, false}) {
    distributed::CommunicatorOptions options{.exact = is_exact, .exact_bytes = 4096, .communicators = 3};
    for (const int micro_steps : {1, 3}) {
      TinyRun run{.model = tests::tiny_gpt2(), .micro_steps = micro_steps, .global_batch = 4 * micro_steps};
      std::optional<TinyResult> first;
      for (const int of_group : {4, 2, 1}) {
        for (run.stage = 1; run.stage <= 3; ++run.stage) {
          run.check_every = run.stage - 1;
          tests::on_first_mesh(
              4, of_group, "nccl",
              [&](distributed::MeshCommunicators& mesh) {
                MemoryLedger ledger;
                const TinyResult result = tests::TinyTraining(run, mesh.mesh(), ledger).result();
                if (!first) first = result;
                INFO("stage " << run.stage << ", groups of " << of_group << (is_exact ? ", exact" : ""));
                if (is_exact) {
                  CHECK(result.losses == first->losses);
                  CHECK(result.norms == first->norms);
                } else {
                  for (std::size_t i = 0; i < result.losses.size(); ++i) {
                    CHECK(std::abs(result.losses[i] - first->losses[i]) < 1e-5 * first->losses[i]);
                    CHECK(std::abs(result.norms[i] - first->norms[i]) < 1e-4 * first->norms[i]);
                  }
                }
              },
              options);
        }
      }
    }
  }
}
