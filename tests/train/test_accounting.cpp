// SPDX-FileCopyrightText: The KoZeRO authors
// SPDX-License-Identifier: Apache-2.0
// test_accounting.cpp: bytes sent and bytes held, by stage, are exactly what the placements say.
//   one micro-step, V = bytes of all units with pads, n ranks, summed over ranks:
//     stages 0, 1, 2: (n-1) 2V     stage 3: (n-1) (3V - embedding - head - the blocks that stay in the slot's buffers)
//   in bf16 gradients travel in f32 (V), weights in half of it.
//   stage 3 saves a gather if a unit is used twice in a row: the tied embedding stays in its slot from the embedding to
//   the head and needs no weights in backward; the head's forward and backward are one call; the last 1 +
//   prefetch_units blocks of forward are still gathered in backward, and as many blocks of backward in the next
//   micro-step.
#include <catch2/catch_test_macros.hpp>
#include <cstdlib>

#include <kozero/distributed/agreement.hpp>
#include <kozero/distributed/communicator_decorators.hpp>
#include <kozero/plan/memory_plan.hpp>

#include "groups.hpp"
#include "tiny_run.hpp"

using namespace kozero;
using tests::TinyRun;

namespace {

struct Accounts {
  std::int64_t bytes_sent = 0;    ///< one step, over all ranks
  std::int64_t bytes_across = 0;  ///< the part of bytes_sent between groups
  std::int64_t held = 0;          ///< parameters + gradients + optimizer state over all ranks
  std::int64_t largest = 0;       ///< the same of the fullest rank
  ParameterTable table;
  train::Settings settings;
  int num_ranks = 1;
  bool here = false;

  /// The bytes that all ranks send by `kozero plan`.
  [[nodiscard]] std::int64_t planned() const { return num_ranks * plan::bytes_sent(settings, table, num_ranks).all; }
};

/// `ranks_per_group` 0: all.
Accounts accounts_of(const TinyRun& run, int num_ranks, int ranks_per_group = 0) {
  Accounts accounts;
  tests::on_first_mesh(num_ranks, ranks_per_group, "mpi", [&](distributed::MeshCommunicators& mesh) {
    MemoryLedger ledger;
    distributed::Communicator& comm = *mesh.all;
    tests::TinyTraining training(run, mesh.mesh(), ledger);
    mesh.counts->reset();
    training.engine().step(1);
    std::int64_t sent = 0;
    std::int64_t across = 0;
    for (const auto& count : mesh.counts->rows()) {
      sent += count.bytes;
      across += count.bytes_across;
    }
    const std::int64_t held =
        ledger.bytes(Memory::parameters) + ledger.bytes(Memory::gradients) + ledger.bytes(Memory::optimizer);
    for (const std::int64_t one : distributed::from_all_ranks(comm, sent)) accounts.bytes_sent += one;
    for (const std::int64_t one : distributed::from_all_ranks(comm, across)) accounts.bytes_across += one;
    for (const std::int64_t one : distributed::from_all_ranks(comm, held)) {
      accounts.held += one;
      accounts.largest = std::max(accounts.largest, one);
    }
    accounts.table = training.engine().parameters();
    accounts.settings = tests::TinyTraining::settings(run, num_ranks, ranks_per_group);
    accounts.num_ranks = num_ranks;
    accounts.here = true;
  });
  return accounts;
}

/// The number of gathers of blocks in a step of `micro_steps` micro-steps.
std::int64_t blocks_gathered(std::int64_t layers, int prefetch_units, int micro_steps) {
  const std::int64_t stay = std::min<std::int64_t>(1 + prefetch_units, layers);
  return layers + (2 * micro_steps - 1) * (layers - stay);
}

void check_plan(const TinyRun& run) {
  const int num_ranks = tests::group_sizes().back();
  tests::on_first_ranks(num_ranks, "mpi", [&](distributed::Communicator& /*group*/, const distributed::Ranks& ranks) {
    MemoryLedger real;
    const auto comm = distributed::make_communicator("mpi", ranks, real);
    tests::TinyTraining training(run, *comm, real);
    MemoryLedger plan(MemoryLedger::Mode::plan);
    const auto planned = distributed::make_planned_communicator("mpi", comm->rank(), comm->size(), plan);
    tests::TinyTraining nothing(run, *planned, plan);
    for (int i = 0; i < static_cast<int>(kMemoryNames.size()); ++i) {
      CHECK(plan.bytes(static_cast<Memory>(i)) == real.bytes(static_cast<Memory>(i)));
    }
    // The copy for saves: master weights and two moments of this rank's own shards.
    const int states = run.precision == Precision::f32 ? 2 : 3;
    std::int64_t of_state = 0;
    for (const auto& line : real.lines()) {
      const bool is_state = line.label == "master weights" || line.label.starts_with("exp_avg");
      if (is_state) of_state += line.bytes;
    }
    std::int64_t of_buffers = 0;  // of an update on a GPU's host
    for (const auto& line : real.lines()) of_buffers += line.label.ends_with("the host's update") ? line.bytes : 0;
    CHECK((of_buffers > 0) == (run.offload.optimizer == tests::Kind::host));
    CHECK(of_buffers <= run.offload.bytes);
    CHECK(3 * of_state == states * training.engine().staging()->bytes());
  });
}

}  // namespace

TEST_CASE("stages 0, 1 and 2 send 2V a rank pair, with local accumulation whatever the micro-steps") {
  for (const int num_ranks : tests::group_sizes()) {
    for (const int stage : {0, 1, 2}) {
      const auto accounts =
          accounts_of({.model = tests::tiny_gpt2(), .stage = stage, .global_batch = num_ranks}, num_ranks);
      if (!accounts.here) continue;
      CHECK(accounts.bytes_sent == (num_ranks - 1) * 2 * 4 * accounts.table.extent());
      CHECK(std::abs(accounts.planned() - accounts.bytes_sent) < num_ranks * num_ranks);  // rounded to whole bytes
    }
    const TinyRun local{.model = tests::tiny_gpt2(),
                        .stage = 1,
                        .accumulation = zero::Accumulation::local,
                        .micro_steps = 3,
                        .global_batch = 3 * num_ranks};
    const auto accounts = accounts_of(local, num_ranks);
    if (!accounts.here) continue;
    CHECK(accounts.bytes_sent == (num_ranks - 1) * 2 * 4 * accounts.table.extent());
    CHECK(std::abs(accounts.planned() - accounts.bytes_sent) < num_ranks * num_ranks);
  }
}

TEST_CASE("stages 0, 1 and 2 with A micro-steps send (A + 1) V") {
  for (const int num_ranks : tests::group_sizes()) {
    for (const int stage : {0, 1, 2}) {
      const auto accounts = accounts_of(
          {.model = tests::tiny_gpt2(), .stage = stage, .micro_steps = 3, .global_batch = 3 * num_ranks}, num_ranks);
      if (accounts.here) CHECK(accounts.bytes_sent == (num_ranks - 1) * 4 * 4 * accounts.table.extent());
    }
  }
}

TEST_CASE("groups: states and gathers are a group's, sums go to the last group, finished gradients to the replicas") {
  const int num_ranks = test::world_size() == 7 ? 6 : std::min(4, test::world_size());
  for (const int of_group : {1, 2, 3}) {
    if (num_ranks % of_group != 0) continue;
    const std::int64_t groups = num_ranks / of_group;
    for (const int stage : {1, 2, 3}) {
      for (const int micro_steps : {1, 3}) {
        const TinyRun run{.model = tests::tiny_gpt2(),
                          .stage = stage,
                          .micro_steps = micro_steps,
                          .global_batch = micro_steps * num_ranks};
        const auto accounts = accounts_of(run, num_ranks, of_group);
        if (!accounts.here) continue;
        CAPTURE(num_ranks, of_group, stage, micro_steps);
        const std::int64_t bytes = 4 * accounts.table.extent();
        CHECK(accounts.bytes_across == micro_steps * (num_ranks - of_group) * bytes + (groups - 1) * bytes);
        const auto planned = plan::bytes_sent(accounts.settings, accounts.table, num_ranks);
        CHECK(std::abs(num_ranks * planned.all - accounts.bytes_sent) < num_ranks * num_ranks);
        CHECK(std::abs(num_ranks * planned.across - accounts.bytes_across) < num_ranks * num_ranks);
        const auto one_group = accounts_of(run, of_group);
        if (one_group.here && stage == 3) CHECK(accounts.held == groups * one_group.held);
      }
    }
  }
}

TEST_CASE("a plan has the buffers of all communicators of a mesh") {
  for (const char* backend : {"mpi", "shm"}) {
    tests::on_first_ranks(
        std::min(4, test::world_size()), "mpi", [&](distributed::Communicator& comm, const distributed::Ranks& ranks) {
          for (int of_group = 1; of_group < comm.size(); ++of_group) {
            if (comm.size() % of_group != 0) continue;
            for (const int ranks_per_node : {0, 1, 2}) {
              if (ranks_per_node > 0 && std::string(backend) == "shm") continue;
              const distributed::CommunicatorOptions options{.ranks_per_node = ranks_per_node};
              MemoryLedger real;
              const auto mesh = distributed::make_mesh(backend, ranks, of_group, real, options);
              MemoryLedger plan(MemoryLedger::Mode::plan);
              const auto planned = distributed::make_planned_mesh(backend, comm.size(), of_group, plan, options);
              CAPTURE(backend, of_group, ranks_per_node);
              CHECK(plan.bytes(Memory::communication) == real.bytes(Memory::communication));
            }
          }
        });
  }
}

TEST_CASE("what is computed again is gathered once for it and for backward") {
  const int num_ranks = tests::group_sizes().back();
  TinyRun run{.model = tests::tiny_gpt2(), .stage = 3, .micro_steps = 2, .global_batch = 2 * num_ranks};
  run.model.layers = 7;
  const auto kept = accounts_of(run, num_ranks);
  for (const auto& recompute : {model::Recompute{1}, model::Recompute{1, true}, model::Recompute{2},
                                model::Recompute{3}, model::Recompute{7}, model::Recompute{9}}) {
    run.recompute = recompute;
    const auto again = accounts_of(run, num_ranks);
    CAPTURE(recompute.blocks, recompute.keeps_attention);
    if (recompute.blocks == 1) CHECK(again.bytes_sent == kept.bytes_sent);
    CHECK(again.bytes_sent <= kept.bytes_sent);  // a group has more buffers
    CHECK(std::abs(again.planned() - again.bytes_sent) < num_ranks * num_ranks);
  }
}

TEST_CASE("several blocks in a unit: bytes sent and calls are planned exactly") {
  const int num_ranks = tests::group_sizes().back();
  constexpr std::array<std::array<int, 2>, 5> kCases = {{{2, 0}, {7, 0}, {3, 1}, {2, 4}, {4, 2}}};
  for (const auto& [in_unit, again] : kCases) {
    for (const int stage : {0, 2, 3}) {
      TinyRun run{.model = tests::tiny_gpt2(), .stage = stage, .micro_steps = 2, .global_batch = 2 * num_ranks};
      run.model.layers = 5;
      run.model.blocks_in_unit = in_unit;
      run.recompute = {again};
      const auto accounts = accounts_of(run, num_ranks);
      if (!accounts.here) continue;
      CAPTURE(in_unit, again, stage);
      CHECK(std::abs(accounts.planned() - accounts.bytes_sent) < num_ranks * num_ranks);
      const std::int64_t units = 2 + (5 + in_unit - 1) / in_unit;
      const auto calls = plan::bytes_sent(accounts.settings, accounts.table, num_ranks).calls;
      if (stage < 3) CHECK(calls == 3 * units);  // the reductions of two micro-steps, and the gathers
    }
  }
}

TEST_CASE("stage 3 sends what its schedule says, less than 3AV") {
  const int num_ranks = tests::group_sizes().back();
  for (const int prefetch_units : {0, 1, 2}) {
    for (const int micro_steps : {1, 3}) {
      TinyRun run{.model = tests::tiny_gpt2(),
                  .stage = 3,
                  .micro_steps = micro_steps,
                  .global_batch = micro_steps * num_ranks,
                  .prefetch_units = prefetch_units};
      run.model.layers = 4;
      const auto accounts = accounts_of(run, num_ranks);
      if (!accounts.here) continue;
      const auto& units = accounts.table.units();
      const std::int64_t embedding = units.front().extent, head = units.back().extent, block = units[1].extent;
      const std::int64_t reduced = micro_steps * accounts.table.extent();
      // Tied: embedding and head have their own slots and are gathered once per step.
      const std::int64_t gathered = embedding + head + blocks_gathered(4, prefetch_units, micro_steps) * block;
      CHECK(accounts.bytes_sent == (num_ranks - 1) * 4 * (reduced + gathered));
      CHECK(reduced + gathered < 3 * micro_steps * accounts.table.extent());
      CHECK(std::abs(accounts.planned() - accounts.bytes_sent) < num_ranks * num_ranks);
    }
  }
}

TEST_CASE("a vocabulary in blocks: bytes sent are planned exactly, and each block is gathered as its walks say") {
  const int num_ranks = tests::group_sizes().back();
  auto untied = tests::tiny_gpt2();
  untied.tie_embeddings = false;
  for (const auto& model : {tests::in_blocks(tests::tiny_gpt2(), 8), tests::in_blocks(tests::tiny_llama(), 16),
                            tests::in_blocks(untied, 8), tests::in_blocks(tests::tiny_gpt2(), 40)}) {
    for (const int stage : {0, 1, 2, 3}) {
      for (const int prefetch_units : {0, 1, 2, 7}) {
        if (stage < 3 && prefetch_units > 0) continue;
        for (const int micro_steps : {1, 3}) {
          const TinyRun run{.model = model,
                            .stage = stage,
                            .micro_steps = micro_steps,
                            .global_batch = micro_steps * num_ranks,
                            .prefetch_units = prefetch_units};
          const auto accounts = accounts_of(run, num_ranks);
          if (!accounts.here) continue;
          CAPTURE(model.arch, model.tie_embeddings, model.vocab_block, stage, prefetch_units, micro_steps);
          CHECK(std::abs(accounts.planned() - accounts.bytes_sent) < num_ranks * num_ranks);
        }
      }
    }
  }
  for (const int blocks : {1, 2, 3}) {
    TinyRun again{.model = tests::in_blocks(tests::tiny_gpt2(), 8),
                  .stage = 3,
                  .micro_steps = 2,
                  .global_batch = 2 * num_ranks,
                  .recompute = {blocks}};
    again.model.layers = 5;
    const auto accounts = accounts_of(again, num_ranks);
    CHECK(std::abs(accounts.planned() - accounts.bytes_sent) < num_ranks * num_ranks);
  }
  // Tied, 5 blocks, one buffer: the lookups read the blocks upwards, the head downwards and then upwards. Each of the
  // head's passes begins with the block that is still in the buffer.
  TinyRun run{.model = tests::in_blocks(tests::tiny_gpt2(), 8), .stage = 3, .global_batch = num_ranks};
  run.prefetch_units = 0;
  const auto accounts = accounts_of(run, num_ranks);
  if (!accounts.here) return;
  const auto& units = accounts.table.units();
  std::int64_t vocabulary = 0;
  for (const Unit& unit : units) vocabulary += unit.vocabulary == VocabularyUse::both ? unit.extent : 0;
  const std::int64_t positions = units[5].extent, block = units[6].extent, head = units.back().extent;
  const std::int64_t gathered = 3 * vocabulary - units[4].extent - units[0].extent + positions + 3 * block + head;
  CHECK(accounts.bytes_sent == (num_ranks - 1) * 4 * (gathered + accounts.table.extent() + vocabulary));
}

TEST_CASE("blocks of a vocabulary take the place of the whole in stage 3's buffers") {
  const auto gathered = [](const model::Config& config, int stage) {
    MemoryLedger plan(MemoryLedger::Mode::plan);
    const auto comm = distributed::make_planned_communicator("mpi", 0, 2, plan);
    const tests::TinyTraining nothing({.model = config, .stage = stage}, *comm, plan);
    return plan.bytes(Memory::gathered);
  };
  auto wide = tests::tiny_gpt2();
  wide.vocab = 4000;
  const std::int64_t block = 400 * wide.dim * 4;
  CHECK(gathered(wide, 3) - gathered(tests::in_blocks(wide, 400), 3) > 2 * 10 * block - 4 * block - block);
  CHECK(gathered(wide, 2) - gathered(tests::in_blocks(wide, 400), 2) > 10 * block - 2 * block - block);
}

TEST_CASE("frozen units: bytes sent are planned exactly, and gradients and states are those of the units that train") {
  const int num_ranks = tests::group_sizes().back();
  for (const int of_group : {num_ranks, num_ranks / 2}) {
    if (of_group == 0) continue;
    for (const int stage : {0, 1, 2, 3}) {
      if (stage == 0 && of_group < num_ranks) continue;
      TinyRun run{.model = tests::tiny_gpt2(), .stage = stage, .micro_steps = 2, .global_batch = 2 * num_ranks};
      run.model.layers = 4;
      run.recompute = {stage == 3 ? 2 : 0};
      const auto all = accounts_of(run, num_ranks, of_group);
      for (const std::vector<std::string>& patterns :
           {std::vector<std::string>{"wte.*", "h.0.*", "h.2.*"}, {"wte.*", "wpe.*", "h.0.*", "h.1.*", "*.ln_2.*"}}) {
        run.model.freeze = patterns;
        const auto some = accounts_of(run, num_ranks, of_group);
        if (!some.here) continue;
        CAPTURE(stage, of_group, patterns);
        CHECK(std::abs(some.planned() - some.bytes_sent) < num_ranks * num_ranks);
        CHECK(some.bytes_sent < all.bytes_sent);
        const std::int64_t weights = 4 * some.table.extent();
        const std::int64_t trained = 4 * some.table.without_frozen_units().extent();
        const std::int64_t copies = num_ranks, groups = num_ranks / of_group;
        // Weights; gradients, and in stages 0 and 1 sums of micro-steps; two moments.
        const std::array<std::int64_t, 4> expected = {
            weights * copies + trained * (3 * copies + groups), weights * copies + trained * (copies + 3 * groups),
            weights * copies + trained * 3 * groups, weights * groups + trained * 3 * groups};
        CHECK(some.held == expected[static_cast<std::size_t>(stage)]);
      }
    }
  }
}

TEST_CASE("adapters: bytes sent are planned exactly, and only they have gradients and states") {
  const int num_ranks = tests::group_sizes().back();
  for (const BaseType base : {BaseType::as_weights, BaseType::int8, BaseType::nf4}) {
    for (const int stage : {0, 1, 2, 3}) {
      for (const int prefetch_units : {0, 1, 2}) {
        TinyRun run{.model = tests::tiny_gpt2(),
                    .precision = Precision::bf16,
                    .base = base,
                    .stage = stage,
                    .micro_steps = 2,
                    .global_batch = 2 * num_ranks,
                    .prefetch_units = prefetch_units};
        run.model.layers = 5;
        run.model.lora = {.rank = 2};
        run.model.blocks_in_unit = prefetch_units == 2 ? 2 : 1;
        run.recompute = {stage == 3 && prefetch_units == 1 ? 2 : 0};
        const auto accounts = accounts_of(run, num_ranks);
        if (!accounts.here) continue;
        CAPTURE(stage, static_cast<int>(base), prefetch_units);
        CHECK(std::abs(accounts.planned() - accounts.bytes_sent) < num_ranks * num_ranks);
        const ParameterTable& table = accounts.table;
        std::int64_t of_base = 0;
        for (int unit = 0; unit < table.num_units(); ++unit) {
          if (!table.unit(unit).is_base) continue;
          of_base += base == BaseType::as_weights ? 2 * table.unit(unit).extent
                                                  : 4 * zero::table_of_words(table, base).unit(unit).extent;
        }
        const std::int64_t trained = table.without_base().extent(), copies = num_ranks;
        // The base and adapters in bf16; gradients, and in stages 0 and 1 sums of micro-steps; moments and the master.
        const std::array<std::int64_t, 4> expected = {(of_base + 2 * trained) * copies + 4 * trained * (4 * copies + 1),
                                                      (of_base + 2 * trained) * copies + 4 * trained * (copies + 4),
                                                      (of_base + 2 * trained) * copies + 16 * trained,
                                                      of_base + 2 * trained + 16 * trained};
        CHECK(accounts.held == expected[static_cast<std::size_t>(stage)]);
      }
    }
  }
}

TEST_CASE("parameters, gradients and optimizer state take the formula's bytes, pads apart") {
  for (const int num_ranks : tests::group_sizes()) {
    for (const int stage : {0, 1, 2, 3}) {
      const auto accounts = accounts_of({.model = tests::tiny_llama(), .stage = stage}, num_ranks);
      if (!accounts.here) continue;
      const std::int64_t all = 4 * accounts.table.extent();
      const std::int64_t copies = num_ranks;
      const std::array<std::int64_t, 4> expected = {4 * all * copies, 2 * all * copies + 2 * all,
                                                    all * copies + 3 * all, 4 * all};
      CHECK(accounts.held == expected[static_cast<std::size_t>(stage)]);
    }
  }
}

TEST_CASE("in bf16 weights travel and are held in two bytes, gradients, moments and the master in four") {
  for (const int num_ranks : tests::group_sizes()) {
    for (const int stage : {0, 1, 2, 3}) {
      const TinyRun run{
          .model = tests::tiny_gpt2(), .precision = Precision::bf16, .stage = stage, .global_batch = num_ranks};
      const auto accounts = accounts_of(run, num_ranks);
      if (!accounts.here) continue;
      const std::int64_t all = accounts.table.extent();
      const auto& units = accounts.table.units();
      const std::int64_t gathered =
          units.front().extent + units.back().extent + blocks_gathered(2, run.prefetch_units, 1) * units[1].extent;
      const std::array<std::int64_t, 4> sent = {8 * all, 6 * all, 6 * all, 4 * all + 2 * gathered};
      const std::array<std::int64_t, 4> held = {18 * all * num_ranks, 6 * all * num_ranks + 12 * all,
                                                2 * all * num_ranks + 16 * all, 18 * all};
      INFO("stage " << stage << ", " << num_ranks << " ranks");
      CHECK(accounts.bytes_sent == (num_ranks - 1) * sent[static_cast<std::size_t>(stage)]);
      CHECK(std::abs(accounts.planned() - accounts.bytes_sent) < num_ranks * num_ranks);
      CHECK(accounts.held == held[static_cast<std::size_t>(stage)]);
    }
  }
}

TEST_CASE("a unit that is gathered ahead takes a buffer, and so does one whose reduction overlaps") {
  const auto gathered = [](int stage, int prefetch_units, bool overlap) {
    MemoryLedger plan(MemoryLedger::Mode::plan);
    const auto comm = distributed::make_planned_communicator("mpi", 0, 2, plan);
    TinyRun run{.model = tests::tiny_gpt2(), .stage = stage, .overlap = overlap, .prefetch_units = prefetch_units};
    run.model.layers = 4;
    const tests::TinyTraining nothing(run, *comm, plan);
    return plan.bytes(Memory::gathered);
  };
  const auto table = accounts_of({.model = tests::tiny_gpt2()}, 1).table;
  if (table.num_units() == 0) return;
  const std::int64_t block = 4 * table.units()[1].extent;
  const std::int64_t ends = 4 * (table.units().front().extent + table.units().back().extent);
  CHECK(gathered(1, 1, true) == 0);
  CHECK(gathered(2, 1, false) == ends + block);
  CHECK(gathered(2, 1, true) == ends + 2 * block);
  CHECK(gathered(3, 0, false) == 2 * ends + 2 * block);
  CHECK(gathered(3, 1, true) == 2 * ends + 4 * block);
  CHECK(gathered(3, 9, true) == 2 * ends + 6 * block);
}

TEST_CASE("the plan is what training books, on every rank's part") {
  for (const auto& model : {tests::tiny_gpt2(), tests::tiny_qwen3(), tests::in_blocks(tests::tiny_gpt2(), 8)}) {
    for (const auto precision : {Precision::f32, Precision::bf16}) {
      for (const int stage : {2, 3}) {
        check_plan({.model = model, .precision = precision, .stage = stage, .micro_steps = 2, .staged = true});
        for (const auto kind : {tests::Kind::disk, tests::Kind::host}) {
          check_plan({.model = model,
                      .precision = precision,
                      .stage = stage,
                      .micro_steps = 2,
                      .staged = true,
                      .offload = tests::offloaded_to(kind, stage == 3 && kind == tests::Kind::host)});
        }
      }
    }
  }
}
