// SPDX-FileCopyrightText: The KoZeRO authors
// SPDX-License-Identifier: Apache-2.0
// layouts.hpp: one outcome of a run on 1 to 4 ranks, in every stage, in groups, recomputed, in units of two blocks,
// with state on a disk or a host, and over two back ends.
#pragma once
#include <catch2/catch_test_macros.hpp>
#include <optional>
#include <string>
#include <vector>

#include "groups.hpp"
#include "tiny_run.hpp"

namespace kozero::tests {

/// The results of a run, which are the same on any number of ranks.
struct Outcome {
  std::vector<double> losses, norms;
  std::string weights;
  bool operator==(const Outcome&) const = default;
};

inline Outcome outcome_of(const TinyRun& run, const distributed::Mesh& mesh) {
  MemoryLedger ledger;
  TinyTraining training(run, mesh, ledger);
  const TinyResult result = training.result();
  return {result.losses, result.norms, training.all_weights()};
}

/// Checks that every layout has the outcome of stage 0 on one rank. `number` selects what each layout is combined with:
/// of the other stages and numbers of ranks, a run takes every second, and the next run the rest.
inline void check_layouts(const char* name, TinyRun run, int number) {
  std::optional<Outcome> first;
  for (const int num_ranks : group_sizes()) {
    for (run.stage = 0; run.stage <= 3; ++run.stage) {
      const bool is_reference = num_ranks == 1 && run.stage == 0;
      if (!is_reference && (number + num_ranks + run.stage) % 2 > 0) continue;
      const int turn = 5 * number + 3 * num_ranks + run.stage;
      const int of_group = num_ranks == 4 && run.stage > 0 && number % 3 > 0 ? 2 : num_ranks;
      run.recompute = {turn / 2 % 4, turn % 3 == 0};
      run.prefetch_units = turn % 3;
      run.overlap = turn % 5 > 0;
      run.check_every = turn / 2 % 2;
      run.model.blocks_in_unit = turn / 2 % 4 == 2 ? 2 : 1;
      run.offload = {};
      if (num_ranks == 2) run.offload = offloaded_to(number % 3 == 0 ? Kind::host : Kind::disk, run.stage == 3);
      const char* const backend = turn / 2 % 2 == 0 ? "shm" : "mpi";
      on_first_mesh(num_ranks, of_group, backend, [&](distributed::MeshCommunicators& mesh) {
        const Outcome outcome = outcome_of(run, mesh.mesh());
        if (!first) first = outcome;
        INFO(name << ", stage " << run.stage << ", " << num_ranks << " ranks in groups of " << of_group);
        CHECK(outcome == *first);
        CHECK(outcome.norms.front() > 0.0);
      });
    }
  }
}

}  // namespace kozero::tests
