// SPDX-FileCopyrightText: The KoZeRO authors
// SPDX-License-Identifier: Apache-2.0
// test_frozen.cpp: runs with frozen tensors (optim.freeze): one outcome on any number of ranks in every stage, frozen
// tensors keep their bits, the others have the gradients of a run that freezes nothing, and checkpoints with one list
// load with another.
#include <catch2/catch_test_macros.hpp>
#include <catch2/matchers/catch_matchers_floating_point.hpp>
#include <cmath>
#include <map>
#include <optional>

#include "io/checkpoint/checkpoint.hpp"
#include "io/checkpoint/inspection.hpp"
#include "layouts.hpp"
#include "shared_folder.hpp"
#include "tiny_run.hpp"

using namespace kozero;
using Catch::Matchers::WithinRel;
using tests::Outcome;
using tests::outcome_of;
using tests::TinyResult;
using tests::TinyRun;
using tests::TinyTraining;

namespace {

model::Config frozen(model::Config config, std::vector<std::string> patterns, std::int64_t layers = 2) {
  config.freeze = std::move(patterns);
  config.layers = layers;
  return config;
}

model::Config untied(model::Config config) {
  config.tie_embeddings = false;
  return config;
}

/// The bytes of each tensor of one rank, by name.
using Tensors = std::map<std::string, std::string>;

/// `values(unit)`: all elements of a unit; units without values are skipped.
template <class Values>
Tensors tensors_of(const ParameterTable& table, const Values& values) {
  Tensors tensors;
  for (int unit = 0; unit < table.num_units(); ++unit) {
    const auto here = Kokkos::create_mirror_view_and_copy(Kokkos::HostSpace(), values(unit));
    if (here.extent(0) == 0) continue;
    for (const Parameter& row : table.rows_of(unit)) {
      tensors[row.name].append(reinterpret_cast<const char*>(here.data() + row.offset),
                               static_cast<std::size_t>(row.extent()) * sizeof(float));
    }
  }
  return tensors;
}

/// One rank's state of a run in stage 0: the tensors at its beginning and after its first step, and this step's
/// gradients.
struct FirstStep {
  train::StepResult result;
  Tensors before, after, gradients;
  ParameterTable table;
};

FirstStep first_step_of(TinyRun run) {
  FirstStep first;
  tests::on_first_ranks(1, "self", [&](distributed::Communicator& comm) {
    MemoryLedger ledger;
    TinyTraining training(run, comm, ledger);
    first.table = training.engine().parameters();
    const auto weights = [&](int unit) { return training.engine().master().shard(unit); };
    first.before = tensors_of(first.table, weights);
    first.result = training.engine().step(1);
    first.after = tensors_of(first.table, weights);
    training.with_state([&](auto& state) {
      first.gradients = tensors_of(first.table, [&](int unit) { return state.gradients().shard(unit); });
    });
  });
  return first;
}

double squares_of(const std::string& bytes) {
  double sum = 0.0;
  for (std::size_t i = 0; i < bytes.size(); i += sizeof(float)) {
    float value = 0.0F;
    std::memcpy(&value, bytes.data() + i, sizeof(float));
    sum += static_cast<double>(value) * static_cast<double>(value);
  }
  return sum;
}

struct Case {
  const char* name;
  model::Config model;
  Precision precision = Precision::f32;
};

std::vector<Case> cases() {
  return {{"the issue's list", frozen(tests::tiny_gpt2(), {"transformer.wte.weight", "h.0.*"}, 3)},
          {"all below block 2", frozen(tests::tiny_gpt2(), {"wte.*", "wpe.*", "h.0.*", "h.1.*"}, 4), Precision::bf16},
          {"a tied vocabulary in blocks", frozen(tests::in_blocks(tests::tiny_gpt2(), 8), {"wte.weight"})},
          {"parts of units", frozen(untied(tests::tiny_gpt2()), {"*.bias", "h.1.ln_1.*", "lm_head.weight"})},
          {"parts of joined matrices",
           frozen(tests::tiny_qwen2(), {"*.k_proj.*", "layers.1.mlp.up_proj.weight", "model.norm.weight"})},
          {"the head alone is trained", frozen(tests::tiny_qwen3(), {"model.*"}), Precision::fp16}};
}

TinyRun run_of(const Case& each) {
  TinyRun run{.model = each.model, .precision = each.precision, .micro_batch = 2, .global_batch = 9};
  if (each.precision == Precision::fp16) run.loss_scaler = train::LossScaler::fixed(0x1p10);
  return run;
}

io::CheckpointRecord record_of(std::int64_t step) {
  return {.step = step, .tokens = 35 * step, .model = "{}", .tokenizer = "none"};
}

}  // namespace

TEST_CASE("frozen tensors keep their bits; the others have the gradients of a run that freezes nothing") {
  for (const Case& each : cases()) {
    INFO(each.name);
    TinyRun run = run_of(each);
    run.grad_clip = 0.0;
    const FirstStep part = first_step_of(run);
    run.model.freeze.clear();
    const FirstStep all = first_step_of(run);
    if (test::world_rank() > 0) continue;
    CHECK(part.result.loss == all.result.loss);
    double squares = 0.0;
    int num_frozen = 0;
    for (int tensor = 0; tensor < std::ssize(part.table.tensors()); ++tensor) {
      const std::string& name = part.table.tensors()[static_cast<std::size_t>(tensor)].name;
      INFO(name);
      REQUIRE(part.before.at(name) == all.before.at(name));
      if (!part.table.is_trainable(tensor)) {
        ++num_frozen;
        CHECK(part.after.at(name) == part.before.at(name));
        CHECK(all.after.at(name) != all.before.at(name));
        CHECK((!part.gradients.contains(name) || squares_of(part.gradients.at(name)) == 0.0));
        continue;
      }
      CHECK(part.gradients.at(name) == all.gradients.at(name));
      CHECK(part.after.at(name) == all.after.at(name));
      squares += squares_of(all.gradients.at(name));
    }
    CHECK(num_frozen > 0);
    CHECK_THAT(part.result.grad_norm * part.result.loss_scale, WithinRel(std::sqrt(squares), 1e-12));
    CHECK(part.result.grad_norm < all.result.grad_norm);
  }
}

TEST_CASE("frozen tensors: one outcome on 1 to 4 ranks, in every stage, in groups, recomputed, on a disk") {
  int number = 0;
  for (const Case& each : cases()) tests::check_layouts(each.name, run_of(each), ++number);
}

TEST_CASE("local accumulation with frozen tensors: the bits of ordered with one micro-step, alike in stages 0 and 1") {
  tests::on_first_ranks(tests::group_sizes().back(), "mpi", [](distributed::Communicator& comm) {
    TinyRun run = run_of(cases().front());
    run.micro_batch = 0;
    run.stage = 1;
    const Outcome ordered = outcome_of(run, comm);
    run.accumulation = zero::Accumulation::local;
    CHECK(outcome_of(run, comm) == ordered);
    run.micro_steps = 2;
    const Outcome at_one = outcome_of(run, comm);
    run.stage = 0;
    CHECK(outcome_of(run, comm) == at_one);
  });
}

TEST_CASE("frozen tensors: a run that goes on with other ranks and stages has the bits it would have had") {
  const tests::SharedFolder folder;
  int number = 0;
  for (const Case& each : cases()) {
    TinyRun run = run_of(each);
    run.steps = 4;
    const std::string saved = folder / std::to_string(++number);
    std::optional<Outcome> whole;
    tests::on_first_ranks(1, "self", [&](distributed::Communicator& comm) { whole = outcome_of(run, comm); });
    run.stage = 3;
    tests::on_first_ranks(3, "mpi", [&](distributed::Communicator& comm) {
      MemoryLedger ledger;
      TinyTraining training(run, comm, ledger);
      training.result_of_steps(1, 2);
      train::save_checkpoint(saved, training.engine(), record_of(2));
    });
    run.stage = 1;
    tests::on_first_ranks(2, "shm", [&](distributed::Communicator& comm) {
      MemoryLedger ledger;
      TinyTraining training(run, comm, ledger);
      CHECK(train::load_state(saved + "/state.h5", training.engine(), comm).empty());
      const TinyResult part = training.result_of_steps(3, 4);
      const std::string weights = training.all_weights();
      INFO(each.name);
      if (comm.rank() > 0) return;
      CHECK(std::equal(part.losses.begin(), part.losses.end(), whole->losses.begin() + 2));
      CHECK(std::equal(part.norms.begin(), part.norms.end(), whole->norms.begin() + 2));
      CHECK(weights == whole->weights);
    });
  }
}

TEST_CASE("a checkpoint has moments of the tensors that train; with another list the rest begin at zero") {
  const tests::SharedFolder folder;
  const std::string saved = folder / "saved";
  const TinyRun before{.model = frozen(tests::tiny_gpt2(), {"h.0.*", "*.ln_2.*"}), .stage = 2};
  tests::on_first_ranks(3, "mpi", [&](distributed::Communicator& comm) {
    MemoryLedger ledger;
    TinyTraining training(before, comm, ledger);
    training.result_of_steps(1, 2);
    train::save_checkpoint(saved, training.engine(), record_of(2));
  });
  if (test::world_rank() == 0) {
    int parameters = 0, moments = 0;
    for (const auto& tensor : io::list_tensors(io::Hdf5File(saved + "/state.h5", io::Hdf5Access::read))) {
      const bool is_moment = tensor.name.starts_with("/optimizer/");
      (is_moment ? moments : parameters) += 1;
      const bool is_frozen =
          tensor.name.find("/h.0.") != std::string::npos || tensor.name.find(".ln_2.") != std::string::npos;
      CHECK_FALSE((is_moment && is_frozen));
    }
    CHECK(parameters == 28);
    CHECK(moments == 2 * (28 - 12 - 2));
  }
  for (const int num_ranks : {1, 2}) {
    TinyRun after{.model = frozen(tests::tiny_gpt2(), {"h.1.*", "wpe.weight"}), .stage = num_ranks};
    tests::on_first_ranks(num_ranks, "mpi", [&](distributed::Communicator& comm) {
      MemoryLedger ledger;
      TinyTraining training(after, comm, ledger);
      const io::AbsentState absent = train::load_state(saved + "/state.h5", training.engine(), comm);
      CHECK(absent.groups.empty());
      CHECK(absent.tensors.size() == 12);
      CHECK(absent.tensors.front() == "h.0.ln_1.weight");
      for (const auto& state : training.engine().optimizer_states()) {
        for (const auto& range : training.engine().update_ranges()) {
          const std::string& unit = training.engine().parameters().unit(range.unit).name;
          double squares = 0.0;
          for (std::int64_t i = 0; i < range.extent; ++i) squares += std::abs(state.values(range.first + i));
          INFO(state.name << " of " << unit);
          if (unit == "block.0") CHECK(squares == 0.0);
          if (unit == "embedding") CHECK(squares > 0.0);
        }
      }
      training.engine().step(3);
    });
    after.model.freeze = {"wte.*", "wpe.*", "h.1.*", "ln_f.*"};
    tests::on_first_ranks(num_ranks, "mpi", [&](distributed::Communicator& comm) {
      MemoryLedger ledger;
      TinyTraining none_of_these(after, comm, ledger);
      const auto absent = train::load_state(saved + "/state.h5", none_of_these.engine(), comm);
      CHECK(absent.groups == std::vector<std::string>{"optimizer/exp_avg", "optimizer/exp_avg_sq"});
    });
  }
}
