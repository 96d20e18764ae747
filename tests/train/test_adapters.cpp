// SPDX-FileCopyrightText: The KoZeRO authors
// SPDX-License-Identifier: Apache-2.0
// test_adapters.cpp: runs that train adapters: one outcome on any number of ranks in every stage, a base that keeps its
// bits and has no gradient, optimizer state, master or place in files, and checkpoints that go on under other layouts.
#include <catch2/catch_test_macros.hpp>
#include <optional>

#include "io/checkpoint/checkpoint.hpp"
#include "io/checkpoint/inspection.hpp"
#include "layouts.hpp"
#include "shared_folder.hpp"
#include "tiny_run.hpp"

using namespace kozero;
using tests::Outcome;
using tests::outcome_of;
using tests::TinyResult;
using tests::TinyRun;
using tests::TinyTraining;

namespace {

struct Case {
  const char* name;
  TinyRun run;
};

TinyRun run_of(model::Config config, model::Lora lora, Precision precision = Precision::f32,
               BaseType base = BaseType::as_weights) {
  config.lora = std::move(lora);
  TinyRun run{.model = std::move(config), .precision = precision, .base = base, .micro_batch = 2, .global_batch = 9};
  if (precision == Precision::fp16) run.loss_scaler = train::LossScaler::fixed(0x1p10);
  return run;
}

std::vector<Case> cases() {
  model::Config deep = tests::tiny_qwen3();
  deep.layers = 4;
  model::Config tied = tests::in_blocks(tests::tiny_llama(), 8);
  tied.tie_embeddings = true;
  return {{"gpt2", run_of(tests::tiny_gpt2(), {.rank = 2})},
          {"a vocabulary in blocks, dropout", run_of(tied, {.rank = 3, .dropout = 0.2F})},
          {"qwen2 in bf16", run_of(tests::tiny_qwen2(), {.rank = 2, .rslora = true}, Precision::bf16)},
          {"qwen3 in fp16, the upper half",
           run_of(deep, {.rank = 2, .targets = {"layers.2.*", "3.mlp.*"}}, Precision::fp16)},
          {"gpt2 with a base in 8 bits", run_of(tests::tiny_gpt2(), {.rank = 2}, Precision::f32, BaseType::int8)},
          {"a vocabulary in blocks, a base in 4 bits", run_of(tied, {.rank = 3}, Precision::bf16, BaseType::nf4)}};
}

/// The base as the model reads it, by unit.
std::vector<std::vector<float>> base_of(TinyTraining& training) {
  std::vector<std::vector<float>> units;
  training.with_state([&](auto& state) {
    const auto& table = training.engine().parameters();
    for (int unit = 0; unit < table.num_units(); ++unit) {
      auto& values = units.emplace_back();
      if (!table.unit(unit).is_base) continue;
      const auto weights = Kokkos::create_mirror_view_and_copy(Kokkos::HostSpace(), state.acquire(unit));
      for (std::size_t i = 0; i < weights.extent(0); ++i) values.push_back(static_cast<float>(weights(i)));
      state.release(unit);
    }
  });
  return units;
}

}  // namespace

TEST_CASE("adapters: one outcome on 1 to 4 ranks, in every stage, in groups, recomputed, in buckets, on a disk") {
  int number = 0;
  for (const auto& [name, run] : cases()) tests::check_layouts(name, run, ++number);
}

TEST_CASE("the base keeps its bits and takes only its own memory: no gradient, state, master or file") {
  for (auto& [name, run] : cases()) {
    INFO(name);
    TinyRun each = run;
    tests::on_first_ranks(2, "shm", [&](distributed::Communicator& comm) {
      for (each.stage = 0; each.stage <= 3; ++each.stage) {
        MemoryLedger ledger;
        TinyTraining training(each, comm, ledger);
        const auto before = base_of(training);
        training.result();
        CHECK((base_of(training) == before));
        const ParameterTable trained = training.engine().parameters().without_base();
        const std::int64_t owners = each.stage == 0 ? 1 : 2;
        const std::int64_t arrays = each.precision == Precision::f32 ? 2 : 3;  // moments, and the master
        CHECK(ledger.bytes(Memory::optimizer) <= arrays * 4 * (trained.extent() / owners + 64 * trained.num_units()));
        CHECK(ledger.bytes(Memory::gradients) <= 2 * 4 * trained.extent());
      }
    });
  }
}

TEST_CASE("a checkpoint of adapters holds nothing of the base, and goes on with other ranks and stages") {
  const tests::SharedFolder folder;
  int number = 0;
  for (const auto& [name, of_case] : cases()) {
    INFO(name);
    TinyRun run = of_case;
    run.steps = 4;
    const std::string saved = folder / std::to_string(++number);
    std::optional<Outcome> whole;
    tests::on_first_ranks(1, "self", [&](distributed::Communicator& comm) { whole = outcome_of(run, comm); });
    run.stage = 3;
    run.staged = number % 2 == 0;
    tests::on_first_ranks(3, "mpi", [&](distributed::Communicator& comm) {
      MemoryLedger ledger;
      TinyTraining training(run, comm, ledger);
      training.result_of_steps(1, 2);
      train::save_checkpoint(saved, training.engine(),
                             {.step = 2, .tokens = 70, .model = "{}", .base = "b", .tokenizer = "none"});
    });
    if (test::world_rank() == 0) {
      std::size_t tensors = 0;
      for (const auto& tensor : io::list_tensors(io::Hdf5File(saved + "/state.h5", io::Hdf5Access::read))) {
        CHECK(tensor.name.find(".lora_") != std::string::npos);
        ++tensors;
      }
      const auto network = model::make_model<float>(run.model);
      std::size_t adapters = 0;
      for (const auto& tensor : network->parameters().tensors()) {
        adapters += tensor.name.find(".lora_") != std::string::npos ? 1 : 0;
      }
      CHECK(tensors == 3 * adapters);
      CHECK(io::read_manifest(saved).record.base == "b");
    }
    run.stage = 1;
    tests::on_first_ranks(2, "shm", [&](distributed::Communicator& comm) {
      MemoryLedger ledger;
      TinyTraining training(run, comm, ledger);
      CHECK(train::load_state(saved + "/state.h5", training.engine(), comm).empty());
      const TinyResult part = training.result_of_steps(3, 4);
      const std::string weights = training.all_weights();
      if (comm.rank() > 0) return;
      CHECK(std::equal(part.losses.begin(), part.losses.end(), whole->losses.begin() + 2));
      CHECK(std::equal(part.norms.begin(), part.norms.end(), whole->norms.begin() + 2));
      CHECK(weights == whole->weights);
    });
  }
}

TEST_CASE("a quantized base: each block is within its bound, norms and biases are exact, on any ranks") {
  for (const BaseType base : {BaseType::int8, BaseType::nf4}) {
    const auto values_on = [&](int ranks, int stage, BaseType type) {
      std::vector<std::vector<float>> values;
      TinyRun run = run_of(tests::tiny_gpt2(), {.rank = 2}, Precision::f32, type);
      run.stage = stage;
      tests::on_first_ranks(ranks, "shm", [&](distributed::Communicator& comm) {
        MemoryLedger ledger;
        TinyTraining training(run, comm, ledger);
        values = base_of(training);
      });
      return values;
    };
    const auto exact = values_on(1, 0, BaseType::as_weights);
    const auto quantized = values_on(1, 0, base);
    for (const int ranks : tests::group_sizes()) {
      const auto again = values_on(ranks, ranks == 2 ? 1 : 3, base);
      if (test::world_rank() == 0) CHECK((again == quantized));  // double parentheses: Catch2 does not print the values
    }
    if (test::world_rank() > 0) continue;
    model::Config config = tests::tiny_gpt2();
    config.lora = {.rank = 2};
    const auto network = model::make_model<float>(config);
    const double bound = base == BaseType::int8 ? 1.0 / 254.0 : 0.152;
    bool differs = false;
    for (const Parameter& row : network->parameters().rows()) {
      const auto unit = static_cast<std::size_t>(row.unit);
      if (row.trainable) continue;
      INFO(row.name);
      double excess = 0.0;
      for (std::int64_t first = row.offset / 64 * 64; first < row.offset + row.extent(); first += 64) {
        double largest = 0.0, error = 0.0;
        for (auto i = static_cast<std::size_t>(first); i < static_cast<std::size_t>(first + 64); ++i) {
          largest = std::max(largest, std::abs(double{exact[unit][i]}));
          error = std::max(error, std::abs(double{exact[unit][i]} - double{quantized[unit][i]}));
        }
        differs = differs || error > 0.0;
        excess = std::max(excess, error - (row.shape.size() > 1 ? (bound + 4e-7) * largest : 0.0));
      }
      CHECK(excess <= 0.0);
    }
    CHECK(differs);
  }
}

TEST_CASE(
    "the base's identity is that of its values: the same beside any adapters, on any ranks, in any stage and type") {
  std::optional<std::string> first;
  model::Config config = tests::tiny_llama();
  config.tie_embeddings = true;  // so that the embedding has a buffer of its own
  for (const BaseType base : {BaseType::as_weights, BaseType::nf4}) {
    for (const int num_ranks : tests::group_sizes()) {
      const model::Lora lora{.rank = num_ranks, .targets = {num_ranks == 3 ? "q_proj" : model::kAllLinear}};
      TinyRun run = run_of(config, lora, num_ranks % 2 == 0 ? Precision::f32 : Precision::bf16, base);
      run.stage = num_ranks % 4;
      tests::on_first_ranks(num_ranks, "mpi", [&](distributed::Communicator& comm) {
        MemoryLedger ledger;
        TinyTraining training(run, comm, ledger);
        const std::string identity = train::initialize_base(3, training.engine());
        if (!first) first = identity;
        CHECK(identity == *first);
        MemoryLedger of_other;
        TinyTraining other(run, comm, of_other);
        base_of(training);
        CHECK(train::initialize_base(4, training.engine()) != *first);
        train::initialize_base(4, other.engine());
        CHECK((base_of(training) == base_of(other)));  // no copy of the base before is left
      });
    }
  }
}
