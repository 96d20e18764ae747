// SPDX-FileCopyrightText: The KoZeRO authors
// SPDX-License-Identifier: Apache-2.0
// test_ladder.cpp: ZeRO stages 0, 1, 2 and 3, on any number of ranks, give the same bits of loss, gradient norm and
// weights.
// Seven ranks split into groups of 1, 2, 3, 4 and 7, so that one MPI program covers every rank count.
#include <array>
#include <catch2/catch_test_macros.hpp>
#include <cmath>
#include <optional>
#include <span>
#include <string>
#include <support/rotation.hpp>

#include "groups.hpp"
#include "tiny_run.hpp"

using namespace kozero;
using tests::result_of;
using tests::TinyResult;
using tests::TinyRun;

namespace {

bool finite_and_moving(const TinyResult& result) {
  for (const double loss : result.losses) {
    if (!(loss > 0.0 && loss < 10.0)) return false;
  }
  return result.norms.front() > 0.0 && result.losses[0] != result.losses[1];
}

void climb(TinyRun run, distributed::Communicator& comm) {
  const TinyResult first = result_of(run, comm);
  CHECK(finite_and_moving(first));
  for (run.stage = 1; run.stage <= 3; ++run.stage) {
    INFO("stage " << run.stage << ", " << comm.size() << " ranks, " << run.micro_steps << " micro-steps");
    CHECK(result_of(run, comm) == first);
  }
}

}  // namespace

TEST_CASE("all stages give the same bits") {
  tests::on_each_group("mpi", [](distributed::Communicator& comm) {
    for (const auto& model : {tests::tiny_gpt2(), tests::tiny_llama()}) {
      for (const int micro_steps : {1, 3}) climb({.model = model, .micro_steps = micro_steps}, comm);
    }
  });
}

TEST_CASE("all stages give the same bits in bf16") {
  tests::on_each_group("mpi", [](distributed::Communicator& comm) {
    for (const auto& model : {tests::tiny_gpt2(), tests::tiny_qwen3()}) {
      climb({.model = model, .precision = Precision::bf16, .micro_steps = 2}, comm);
    }
  });
}

TEST_CASE("all stages give the same bits in fp16") {
  for (const int num_ranks : {2, 4}) {
    tests::on_first_ranks(num_ranks, "mpi", [](distributed::Communicator& comm) {
      climb({.model = tests::tiny_gpt2(),
             .precision = Precision::fp16,
             .micro_steps = 2,
             .loss_scaler = train::LossScaler::dynamic(2)},
            comm);
    });
  }
}

TEST_CASE("tied Llama and Qwen3, Qwen2, untied GPT-2, GPT-2 without biases, and SGD with momentum climb too") {
  tests::on_first_ranks(tests::group_sizes().back(), "mpi", [](distributed::Communicator& comm) {
    auto llama = tests::tiny_llama();
    llama.tie_embeddings = true;
    auto gpt2 = tests::tiny_gpt2();
    gpt2.tie_embeddings = false;
    auto qwen3 = tests::tiny_qwen3();
    qwen3.tie_embeddings = true;
    climb({.model = llama, .micro_steps = 2}, comm);
    climb({.model = tests::tiny_qwen2(), .micro_steps = 2}, comm);
    climb({.model = qwen3, .micro_steps = 2}, comm);
    climb({.model = gpt2, .micro_steps = 2}, comm);
    gpt2.bias = false;
    climb({.model = gpt2, .micro_steps = 2}, comm);
    climb({.model = gpt2, .precision = Precision::bf16}, comm);
    climb({.model = tests::tiny_gpt2(), .optimizer = "sgd"}, comm);
  });
}

TEST_CASE("all stages give the same bits if documents are masked, with and without recomputation") {
  tests::on_each_group("mpi", [](distributed::Communicator& comm) {
    for (const auto& model : {tests::tiny_gpt2(), tests::tiny_llama(), tests::tiny_qwen2(), tests::tiny_qwen3()}) {
      TinyRun run{.model = model, .micro_steps = 2, .masks_documents = true};
      climb(run, comm);
      const TinyResult first = result_of(run, comm);
      run.recompute = {.blocks = 1};
      CHECK(result_of(run, comm) == first);
      run.recompute = {.blocks = 1, .keeps_attention = true};
      CHECK(result_of(run, comm) == first);
    }
  });
}

TEST_CASE("state on a disk, or updated on a GPU's host, gives the bits of state in memory, in every stage") {
  for (const int num_ranks : {1, 2, tests::group_sizes().back()}) {
    tests::on_first_ranks(num_ranks, num_ranks == 2 ? "shm" : "mpi", [](distributed::Communicator& comm) {
      for (const auto precision : {Precision::f32, Precision::bf16}) {
        TinyRun run{.model = tests::tiny_gpt2(), .precision = precision, .micro_steps = 2};
        const TinyResult first = result_of(run, comm);
        for (run.stage = 0; run.stage <= 3; ++run.stage) {
          for (const auto kind : {tests::Kind::disk, tests::Kind::host}) {
            for (const bool parameters : {false, true}) {
              if (parameters && run.stage < 3) continue;
              run.offload = tests::offloaded_to(kind, parameters);
              run.check_every = run.stage % 2;
              INFO("stage " << run.stage << ", " << comm.size() << " ranks, " << (parameters ? "all" : "moments")
                            << (kind == tests::Kind::disk ? " on a disk" : " on the host"));
              CHECK(result_of(run, comm) == first);
            }
          }
        }
      }
    });
  }
}

TEST_CASE("mpi and shm give the same bits") {
  for (const auto precision : {Precision::f32, Precision::bf16}) {
    const TinyRun run{.model = tests::tiny_gpt2(), .precision = precision, .stage = 3, .micro_steps = 2};
    for (const int num_ranks : tests::group_sizes()) {
      TinyResult by_mpi, by_shm;
      tests::on_first_ranks(num_ranks, "mpi", [&](distributed::Communicator& comm) { by_mpi = result_of(run, comm); });
      tests::on_first_ranks(num_ranks, "shm", [&](distributed::Communicator& comm) { by_shm = result_of(run, comm); });
      CHECK(by_mpi == by_shm);
    }
  }
}

TEST_CASE("bf16 and fp16 follow f32 from step to step, in every network") {
  tests::on_first_ranks(2, "mpi", [](distributed::Communicator& comm) {
    for (const auto& model : {tests::tiny_gpt2(), tests::tiny_llama(), tests::tiny_qwen2(), tests::tiny_qwen3()}) {
      TinyRun run{.model = model, .stage = 3, .steps = 5};
      const TinyResult wide = result_of(run, comm);
      for (const auto precision : {Precision::bf16, Precision::fp16}) {
        run.precision = precision;
        run.loss_scaler = precision == Precision::fp16 ? train::LossScaler::fixed(0x1p12) : train::LossScaler();
        const TinyResult narrow = result_of(run, comm);
        const double bound = precision == Precision::fp16 ? 0.00125 : 0.01;  // fp16 has 3 bits more than bf16
        INFO(model.arch << " in " << name_of(precision));
        CHECK(wide.losses != narrow.losses);
        for (std::size_t i = 0; i < wide.losses.size(); ++i) {
          CHECK(std::abs(narrow.losses[i] - wide.losses[i]) < bound * wide.losses[i]);
          CHECK(std::abs(narrow.norms[i] - wide.norms[i]) < 5.0 * bound * wide.norms[i]);
        }
      }
    }
  });
}

TEST_CASE("local and ordered accumulation: the same bits with one micro-step, nearly the same with three") {
  tests::on_first_ranks(tests::group_sizes().back(), "mpi", [](distributed::Communicator& comm) {
    TinyRun local{.model = tests::tiny_gpt2(), .stage = 1, .accumulation = zero::Accumulation::local};
    TinyRun ordered = local;
    ordered.accumulation = zero::Accumulation::ordered;
    CHECK(result_of(local, comm) == result_of(ordered, comm));

    local.micro_steps = ordered.micro_steps = 3;
    const TinyResult at_one = result_of(local, comm);
    const TinyResult shards = result_of(ordered, comm);
    local.stage = 0;
    CHECK(result_of(local, comm) == at_one);
    for (std::size_t i = 0; i < at_one.losses.size(); ++i) CHECK(std::abs(at_one.losses[i] - shards.losses[i]) < 1e-5);
  });
}

TEST_CASE("a run repeats bit for bit") {
  tests::on_first_ranks(tests::group_sizes().back(), "mpi", [](distributed::Communicator& comm) {
    const TinyRun run{.model = tests::tiny_llama(), .stage = 2, .micro_steps = 2};
    CHECK(result_of(run, comm) == result_of(run, comm));
  });
}

namespace {

/// The results of a run, which are the same on any number of ranks: losses, norms, and the bytes of all weights.
struct Outcome {
  TinyResult steps;
  std::string weights;
  bool operator==(const Outcome& other) const {
    return steps.losses == other.steps.losses && steps.norms == other.steps.norms && weights == other.weights;
  }
};

Outcome outcome_of(const TinyRun& run, const distributed::Mesh& mesh) {
  MemoryLedger ledger;
  tests::TinyTraining training(run, mesh, ledger);
  Outcome outcome{training.result(), {}};
  outcome.weights = training.all_weights();
  return outcome;
}

}  // namespace

TEST_CASE("one outcome per model, precision and batch: on 1 to 7 ranks, in every stage, with uneven granules") {
  int turn = 0;
  test::Rotation rotation("one outcome", 4);
  for (const auto precision : {Precision::f32, Precision::bf16, Precision::fp16}) {
    for (const auto& model : {tests::tiny_gpt2(), tests::tiny_llama(), tests::tiny_qwen3()}) {
      for (const std::int64_t granules : {1, 3, 5}) {
        if (!rotation.takes()) continue;
        TinyRun run{
            .model = model, .precision = precision, .micro_batch = 2, .global_batch = 2 * granules - granules / 3};
        if (precision == Precision::fp16) run.loss_scaler = train::LossScaler::fixed(0x1p10);
        std::optional<Outcome> first;
        for (const int num_ranks : tests::group_sizes()) {
          // The program on 4 ranks runs these cases.
          if (test::world_size() == 7 && (num_ranks % 2 == 0 || granules < 5)) continue;
          for (run.stage = 0; run.stage <= 3; ++run.stage) {
            if (num_ranks == 7 && run.stage < 3 && ++turn % 3 > 0)
              continue;  // on 7 ranks every third case, and stage 3
            // Recomputation changes no bit.
            run.recompute = run.stage == 0 ? model::Recompute() : model::Recompute{1, run.stage == 1};
            // shm, one node, and nodes of 1 or 2 ranks: each stage runs with each of them on some number of ranks.
            const int layout = (num_ranks + 3 * run.stage + static_cast<int>(granules)) % 4;
            const int ranks_per_node = layout < 2 ? 0 : layout == 3 && num_ranks == 4 ? 2 : 1;
            tests::on_first_ranks(num_ranks, layout == 0 ? "shm" : "mpi",
                                  [&](distributed::Communicator& comm) {
                                    const Outcome outcome = outcome_of(run, comm);
                                    if (!first) first = outcome;
                                    INFO(model.arch << ", " << name_of(precision) << ", " << granules
                                                    << " granules, stage " << run.stage << ", " << num_ranks
                                                    << " ranks, " << comm.description());
                                    CHECK(outcome == *first);
                                  },
                                  {.ranks_per_node = ranks_per_node});
          }
        }
      }
    }
  }
}

TEST_CASE("targets that do not count: one outcome on any number of ranks, in every stage") {
  for (const auto& model : {tests::tiny_gpt2(), tests::in_blocks(tests::tiny_llama(), 8)}) {
    TinyRun run{.model = model, .micro_batch = 2, .global_batch = 9, .ignores_targets = true};
    std::optional<Outcome> first;
    for (const int num_ranks : tests::group_sizes()) {
      if (test::world_size() == 7 && num_ranks < 7) continue;  // the program on 4 ranks does these
      for (run.stage = 0; run.stage <= 3; ++run.stage) {
        tests::on_first_ranks(num_ranks, "mpi", [&](distributed::Communicator& comm) {
          const Outcome outcome = outcome_of(run, comm);
          if (!first) first = outcome;
          INFO(model.arch << ", stage " << run.stage << ", " << num_ranks << " ranks");
          CHECK(outcome == *first);
        });
      }
    }
  }
}

TEST_CASE("a vocabulary in blocks: one outcome on 1 to 7 ranks, in every stage, in groups, on a disk") {
  auto tied_llama = tests::tiny_llama();
  tied_llama.tie_embeddings = true;
  auto untied_gpt2 = tests::tiny_gpt2();
  untied_gpt2.tie_embeddings = false;
  const std::vector<std::pair<model::Config, Precision>> cases = {
      {tests::in_blocks(tests::tiny_gpt2(), 8), Precision::f32},
      {tests::in_blocks(tests::tiny_gpt2(), 40), Precision::bf16},  // one block
      {tests::in_blocks(tied_llama, 16), Precision::f32},
      {tests::in_blocks(tests::tiny_qwen3(), 8), Precision::bf16},
      {tests::in_blocks(untied_gpt2, 16), Precision::fp16}};
  test::Rotation rotation("a vocabulary in blocks", 3);
  for (const auto& [model, precision] : cases) {
    if (!rotation.takes()) continue;
    TinyRun run{.model = model, .precision = precision, .micro_batch = 2, .global_batch = 9};
    if (precision == Precision::fp16) run.loss_scaler = train::LossScaler::fixed(0x1p10);
    std::optional<Outcome> first;
    for (const int num_ranks : tests::group_sizes()) {
      if (test::world_size() == 7 && num_ranks > 1 && num_ranks < 7) continue;  // the program on 4 ranks does these
      for (run.stage = 0; run.stage <= 3; ++run.stage) {
        run.prefetch_units = (num_ranks + run.stage) % 3;
        run.overlap = num_ranks != 3;
        run.recompute = run.stage == 1 ? model::Recompute{1} : model::Recompute();
        run.check_every = run.stage == 2 ? 1 : 0;
        run.offload = {};
        if (run.stage == 3 && num_ranks == 2) run.offload = tests::offloaded_to(tests::Kind::disk, true);
        for (const int of_group : {num_ranks, num_ranks / 2}) {
          if (of_group == 0 || num_ranks % of_group != 0 || (of_group < num_ranks && run.stage == 0)) continue;
          tests::on_first_mesh(num_ranks, of_group, run.stage == 2 ? "shm" : "mpi",
                               [&](distributed::MeshCommunicators& mesh) {
                                 const Outcome outcome = outcome_of(run, mesh.mesh());
                                 if (!first) first = outcome;
                                 INFO(model.arch << ", " << name_of(precision) << ", stage " << run.stage << ", "
                                                 << num_ranks << " ranks in groups of " << of_group);
                                 CHECK(finite_and_moving(outcome.steps));
                                 CHECK(outcome == *first);
                               });
        }
      }
    }
  }
}

TEST_CASE("several blocks in a unit: the outcome of blocks alone, on 1 to 7 ranks, in every stage, in groups") {
  for (const auto precision : {Precision::f32, Precision::bf16}) {
    TinyRun run{.model = tests::tiny_gpt2(), .precision = precision, .micro_batch = 2, .global_batch = 9};
    run.model.layers = 5;
    std::optional<Outcome> first;
    tests::on_first_ranks(1, "self", [&](distributed::Communicator& comm) { first = outcome_of(run, comm); });
    int turn = 0;
    for (const int num_ranks : tests::group_sizes()) {
      if (test::world_size() == 7 && num_ranks > 1 && num_ranks < 7) continue;  // the program on 4 ranks does these
      for (run.stage = 0; run.stage <= 3; ++run.stage) {
        for (const int of_group : {num_ranks, num_ranks / 2}) {
          if (of_group == 0 || num_ranks % of_group != 0 || (of_group < num_ranks && run.stage == 0)) continue;
          // Blocks per unit, and blocks that are recomputed together.
          constexpr std::array<std::array<int, 2>, 5> kCases = {{{2, 0}, {7, 0}, {3, 1}, {2, 4}, {4, 2}}};
          const auto [in_unit, again] = kCases[static_cast<std::size_t>(turn++) % kCases.size()];
          run.model.blocks_in_unit = in_unit;
          run.recompute = {again};
          run.prefetch_units = turn % 3;
          run.check_every = run.stage == 2 ? 1 : 0;
          tests::on_first_mesh(
              num_ranks, of_group, turn % 2 == 0 ? "shm" : "mpi", [&](distributed::MeshCommunicators& mesh) {
                const Outcome outcome = outcome_of(run, mesh.mesh());
                INFO(name_of(precision) << ", units of " << in_unit << " blocks, " << again << " computed again, stage "
                                        << run.stage << ", " << num_ranks << " ranks in groups of " << of_group);
                CHECK(finite_and_moving(outcome.steps));
                CHECK((!first || outcome == *first));
              });
        }
      }
    }
  }
}

TEST_CASE("more units than collectives may be under way: shm and mpi give the bits of one rank") {
  if (test::world_size() == 7) return;  // the program on 4 ranks does it
  model::Config many_blocks = tests::in_blocks(tests::tiny_gpt2(), 8);
  many_blocks.vocab = 257;
  model::Config many_layers = tests::tiny_gpt2();
  many_layers.layers = 30;
  for (const auto& model : {many_blocks, many_layers}) {
    TinyRun run{.model = model, .stage = 3, .micro_batch = 1, .global_batch = 9, .steps = 2};
    std::optional<Outcome> first;
    tests::on_first_ranks(1, "self", [&](distributed::Communicator& comm) { first = outcome_of(run, comm); });
    for (const int num_ranks : {2, 3}) {
      for (const char* backend : {"shm", "mpi"}) {
        for (run.prefetch_units = 0; run.prefetch_units < 3; ++run.prefetch_units) {
          const auto check = [&](distributed::Communicator& comm) {
            const Outcome outcome = outcome_of(run, comm);
            INFO(backend << ", " << num_ranks << " ranks, " << run.prefetch_units << " units ahead");
            CHECK((!first || outcome == *first));
          };
          tests::on_first_ranks(num_ranks, backend, check,
                                {.under_way = zero::collectives_under_way(run.prefetch_units)});
        }
      }
    }
  }
}

TEST_CASE("a vocabulary in blocks stays near the whole, from step to step") {
  tests::on_first_ranks(2, "mpi", [](distributed::Communicator& comm) {
    for (const auto& model : {tests::tiny_gpt2(), tests::tiny_llama()}) {
      const TinyResult whole = result_of({.model = model, .stage = 2}, comm);
      const TinyResult blocks = result_of({.model = tests::in_blocks(model, 8), .stage = 3}, comm);
      for (std::size_t i = 0; i < whole.losses.size(); ++i) {
        CHECK(std::abs(whole.losses[i] - blocks.losses[i]) < 1e-5);
        CHECK(std::abs(whole.norms[i] - blocks.norms[i]) < 1e-4);
      }
    }
  });
}

TEST_CASE("sharding in groups of ranks gives the bits of one group, by every algorithm of the sums") {
  const int num_ranks = test::world_size() == 7 ? 6 : std::min(4, test::world_size());
  std::size_t turn = 0;
  test::Rotation rotation("groups", 2);
  for (const auto precision : {Precision::f32, Precision::bf16}) {
    for (const int micro_steps : {1, 3}) {
      if (!rotation.takes()) continue;
      TinyRun run{.model = tests::tiny_gpt2(), .precision = precision, .micro_steps = micro_steps, .global_batch = 11};
      std::optional<Outcome> first;
      tests::on_first_ranks(num_ranks, "mpi", [&](distributed::Communicator& comm) { first = outcome_of(run, comm); });
      for (run.stage = 1; run.stage <= 3; ++run.stage) {
        for (const int of_group : {1, 2, 3}) {
          if (num_ranks % of_group != 0) continue;
          // On 6 ranks one of these at a time; over all cases each stage and group has all four.
          const std::array<int, 4> of_nodes = {0, 1, of_group, -1};
          const bool all = test::world_size() < 7;
          for (const int ranks_per_node : all ? std::span(of_nodes) : std::span(of_nodes).subspan(turn++ % 4, 1)) {
            run.check_every = ranks_per_node == 1 ? 1 : 0;
            run.offload = {};
            if (ranks_per_node == -1) run.offload = tests::offloaded_to(tests::Kind::disk, run.stage == 3);
            run.recompute = ranks_per_node == of_group ? model::Recompute{1} : model::Recompute();
            tests::on_first_mesh(num_ranks, of_group, ranks_per_node < 0 ? "shm" : "mpi",
                                 [&](distributed::MeshCommunicators& mesh) {
                                   const Outcome outcome = outcome_of(run, mesh.mesh());
                                   INFO("stage " << run.stage << ", " << num_ranks << " ranks in groups of " << of_group
                                                 << ", " << mesh.all->description());
                                   CHECK(outcome == *first);
                                 },
                                 {.ranks_per_node = std::max(ranks_per_node, 0)});
          }
        }
      }
      run.stage = 1;
      run.accumulation = zero::Accumulation::local;
      std::optional<TinyResult> local;
      tests::on_first_mesh(num_ranks, num_ranks, "mpi", [&](auto& mesh) { local = result_of(run, mesh.mesh()); });
      tests::on_first_mesh(num_ranks, num_ranks / 2, "mpi", [&](auto& mesh) {
        const TinyResult grouped = result_of(run, mesh.mesh());
        CHECK(grouped.losses == local->losses);
        CHECK(grouped.norms == local->norms);
      });
    }
  }
}

TEST_CASE("groups of blocks that are computed again under stage 3 give the bits of none, whatever is gathered ahead") {
  if (test::world_size() == 7) return;  // the program on 4 ranks does it
  test::Rotation rotation("groups of blocks", 3);
  for (const bool tied : {false, true}) {
    TinyRun run{.model = tests::tiny_gpt2(), .stage = 3, .micro_steps = 2, .global_batch = 4};
    run.model.layers = 7;
    run.model.tie_embeddings = tied;
    for (const int ranks_per_node : {0, 1, 2}) {
      if (!rotation.takes()) continue;
      std::optional<TinyResult> kept;
      for (const int blocks : {0, 1, 2, 3, 7}) {
        for (const int ahead : {0, 1, 3}) {
          run.recompute = {blocks};
          run.prefetch_units = ahead;
          const auto check = [&](distributed::Communicator& comm) {
            const TinyResult result = result_of(run, comm);
            if (!kept) kept = result;
            INFO(blocks << " blocks again, " << ahead << " units ahead, " << comm.description());
            CHECK(result == *kept);
          };
          const int held = std::max(blocks, 1);
          tests::on_first_ranks(
              std::min(4, tests::group_sizes().back()), ranks_per_node == 0 ? "shm" : "mpi", check,
              {.under_way = zero::collectives_under_way(ahead + held - 1), .ranks_per_node = ranks_per_node});
        }
      }
    }
  }
}
