// SPDX-FileCopyrightText: The KoZeRO authors
// SPDX-License-Identifier: Apache-2.0
// test_ladder_ring.cpp: training around the ring: the stages agree, and with comm.exact the bits are those of mpi.
#include <catch2/catch_test_macros.hpp>
#include <optional>

#include "groups.hpp"
#include "tiny_run.hpp"

using namespace kozero;
using tests::TinyResult;
using tests::TinyRun;

TEST_CASE("around the ring all stages give the same bits on a number of ranks") {
  tests::on_each_group("ring", [](distributed::Communicator& comm) {
    for (const int micro_steps : {1, 3}) {
      TinyRun run{.model = tests::tiny_gpt2(), .micro_steps = micro_steps};
      const TinyResult first = result_of(run, comm);
      for (run.stage = 1; run.stage <= 3; ++run.stage) {
        INFO("stage " << run.stage << ", " << comm.size() << " ranks, " << micro_steps << " micro-steps");
        CHECK(result_of(run, comm) == first);
      }
    }
  });
}

TEST_CASE("with comm.exact the ring gives the bits of mpi in every stage, and of one rank on any number of ranks") {
  const distributed::CommunicatorOptions exact{.exact = true, .chunk_bytes = 16384};
  for (const auto precision : {Precision::f32, Precision::bf16}) {
    TinyRun run{.model = tests::tiny_gpt2(), .precision = precision, .micro_batch = 2, .global_batch = 10};
    std::optional<TinyResult> first;
    for (const int num_ranks : tests::group_sizes()) {
      TinyResult by_mpi;
      run.stage = 0;
      tests::on_first_ranks(num_ranks, "mpi", [&](distributed::Communicator& comm) { by_mpi = result_of(run, comm); });
      const auto check = [&](distributed::Communicator& comm) {
        CHECK(comm.adds_in_order());
        for (run.stage = 0; run.stage <= 3; ++run.stage) {
          const TinyResult result = result_of(run, comm);
          if (!first) first = result;
          INFO("stage " << run.stage << ", " << comm.size() << " ranks");
          CHECK(result == by_mpi);
          CHECK(result.losses == first->losses);
          CHECK(result.norms == first->norms);
        }
      };
      tests::on_first_ranks(num_ranks, "ring", check, exact);
    }
  }
}

TEST_CASE("groups of ranks on the ring: with comm.exact the bits of one rank, in every group and stage") {
  const distributed::CommunicatorOptions exact{.exact = true, .chunk_bytes = 16384, .communicators = 3};
  if (test::world_size() < 4) return;
  TinyRun run{.model = tests::tiny_gpt2(), .micro_steps = 3, .global_batch = 12};
  std::optional<TinyResult> first;
  for (const int of_group : {4, 2, 1}) {
    for (run.stage = 1; run.stage <= 3; ++run.stage) {
      tests::on_first_mesh(
          4, of_group, "ring",
          [&](distributed::MeshCommunicators& mesh) {
            const TinyResult result = result_of(run, mesh.mesh());
            if (!first) first = result;
            INFO("stage " << run.stage << ", groups of " << of_group);
            CHECK(result.losses == first->losses);
            CHECK(result.norms == first->norms);
          },
          exact);
    }
  }
}
