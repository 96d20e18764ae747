// SPDX-FileCopyrightText: The KoZeRO authors
// SPDX-License-Identifier: Apache-2.0
// test_checkpoint.cpp: state saved under any placement and rank count loads under any other with equal bytes. A run
// that stops and resumes gives the bits of a run without a stop.
#include <catch2/catch_test_macros.hpp>
#include <catch2/matchers/catch_matchers_string.hpp>

#include <kozero/distributed/agreement.hpp>
#include <kozero/train/checkpoint.hpp>
#include "kernels/launch/reduce.hpp"

#include "groups.hpp"
#include "shared_folder.hpp"
#include "tiny_run.hpp"

using namespace kozero;
using Catch::Matchers::ContainsSubstring;
using tests::SharedFolder;
using tests::TinyResult;
using tests::TinyRun;
using tests::TinyTraining;

namespace {

/// Whether the state that is replicated has the same bits on all ranks.
bool holds_equal_copies(TinyTraining& training) {
  bool equal = true;
  training.with_state([&](auto& state) {
    for (const auto& array : state.weights().at_rest()) {
      const auto hash = kernels::bit_hash(Device(), array.words);
      const auto all = distributed::from_all_ranks(training.engine().comm(), hash);
      equal = equal && (!array.replicated || std::ranges::count(all, hash) == std::ssize(all));
    }
  });
  return equal;
}

/// Gives every element of every tensor, in weights and optimizer state, a different value, a function of its index.
void number_elements(TinyTraining& training, bool fill, int& wrong) {
  const ParameterTable& table = training.engine().parameters();
  const auto visit = [&](int kind, int unit, std::int64_t begin, const Vector<float>& values) {
    for (const auto& row : table.rows()) {
      for (std::int64_t i = 0; row.unit == unit && i < row.extent(); ++i) {
        const std::int64_t index = row.offset + i - begin;
        if (index < 0 || index >= static_cast<std::int64_t>(values.extent(0))) continue;
        const auto value =
            static_cast<float>(table.unit(unit).offset + row.offset + i) + 0.25F * static_cast<float>(kind);
        float& held = values(static_cast<std::size_t>(index));
        wrong += (fill ? std::exchange(held, value) : held) == value ? 0 : 1;
      }
    }
  };
  training.with_state([&](auto& state) {
    for (const auto& owned : state.update_ranges()) visit(0, owned.range.unit, owned.range.begin, owned.master);
  });
  int kind = 0;
  for (const auto& state : training.engine().optimizer_states()) {
    ++kind;
    for (const auto& range : training.engine().update_ranges()) {
      visit(kind, range.unit, range.begin, slice(state.values, range.first, range.extent));
    }
  }
  if (fill) training.engine().publish();
}

/// One block of odd sizes; some ranks have short or empty shards of its units.
model::Config smallest_gpt2() {
  return {.arch = "gpt2", .layers = 1, .dim = 10, .heads = 2, .vocab = 23, .seq = 5, .dropout = 0.1F, .seed = 5};
}

/// A network of several units for saves under stage s on s + 1 ranks; otherwise the smallest model.
model::Config model_of(int saved) {
  if (saved % 5 == 0) return smallest_gpt2();
  return {.arch = "linear", .layers = 1, .dim = 13, .vocab = 1, .seq = 1, .tie_embeddings = false, .seed = 5};
}

io::CheckpointRecord record_of(std::int64_t step) {
  return {.step = step, .tokens = 35 * step, .model = "{}", .tokenizer = "none"};
}

}  // namespace

TEST_CASE("saved under any stage and rank count, loaded under all 16: equal in bytes") {
  const SharedFolder folder;
  int numbered = 0;
  for (int saved = 0; saved < 16; ++saved) {
    const std::string path = folder / ("step_" + std::to_string(saved));
    tests::on_first_ranks(1 + saved / 4, "mpi", [&](distributed::Communicator& comm) {
      MemoryLedger ledger;
      tests::TinyRun run{.model = model_of(saved), .stage = saved % 4};
      if (saved % 3 == 0) run.offload = tests::offloaded_to(tests::Kind::disk, run.stage == 3);
      TinyTraining training(run, comm, ledger);
      number_elements(training, true, numbered);
      train::save_checkpoint(path, training.engine(), record_of(saved));
    });
    tests::on_each_group("mpi", [&](distributed::Communicator& comm) {
      for (int stage = 0; stage <= 3; ++stage) {
        MemoryLedger ledger;
        tests::TinyRun run{.model = model_of(saved), .stage = stage};
        if ((saved + stage) % 2 == 1) {
          run.offload = tests::offloaded_to(saved % 4 < 2 ? tests::Kind::disk : tests::Kind::host, stage == 3);
        }
        TinyTraining training(run, comm, ledger);
        CHECK(train::load_state(path + "/state.h5", training.engine(), comm).empty());
        int wrong = 0;
        number_elements(training, false, wrong);
        INFO("saved as " << saved << ", loaded under stage " << stage << " on " << comm.size() << " ranks");
        CHECK(wrong == 0);
        CHECK(holds_equal_copies(training));
      }
    });
  }
  if (test::world_rank() == 0) CHECK(numbered > 0);
}

TEST_CASE("saved with the vocabulary whole or in blocks, loaded with other ones: equal tensors") {
  const SharedFolder folder;
  model::Config model = smallest_gpt2();
  for (const int saved : {0, 8, 16}) {
    model.tie_embeddings = saved < 16;
    std::vector<std::uint64_t> hashes(std::size_t{15} + (model.tie_embeddings ? 1 : 2));
    const std::string path = folder / std::to_string(saved);
    tests::on_first_ranks(std::min(2, test::world_size()), "mpi", [&](distributed::Communicator& comm) {
      MemoryLedger ledger;
      TinyTraining training({.model = tests::in_blocks(model, saved), .stage = 3}, comm, ledger);
      training.result();
      train::save_checkpoint(path, training.engine(), record_of(saved));
      hashes = zero::tensor_hashes(training.engine().parameters(), training.engine().master());
    });
    tests::on_first_ranks(test::world_size(), "mpi", [&](distributed::Communicator& comm) {
      for (auto& hash : hashes) hash = distributed::broadcast_value(comm, hash);
      for (const int loaded : {0, 8, 24}) {
        MemoryLedger ledger;
        TinyTraining training({.model = tests::in_blocks(model, loaded), .stage = loaded / 8}, comm, ledger);
        CHECK(train::load_state(path + "/state.h5", training.engine(), comm).empty());
        CAPTURE(saved, loaded);
        CHECK(zero::tensor_hashes(training.engine().parameters(), training.engine().master()) == hashes);
      }
    });
  }
}

TEST_CASE("saved by groups of ranks, loaded by others and by one: equal in bytes") {
  const SharedFolder folder;
  int numbered = 0;
  const int all = std::min(4, test::world_size());
  for (const int of_group : {1, 2}) {
    if (all % of_group != 0) continue;
    for (int stage = 1; stage <= 3; ++stage) {
      const std::string path = folder / std::to_string(10 * of_group + stage);
      tests::on_first_mesh(all, of_group, "mpi", [&](distributed::MeshCommunicators& mesh) {
        MemoryLedger ledger;
        TinyTraining training({.model = smallest_gpt2(), .stage = stage}, mesh.mesh(), ledger);
        number_elements(training, true, numbered);
        train::save_checkpoint(path, training.engine(), record_of(stage));
      });
      for (const int loaded_of : {1, 2, all}) {
        if (all % loaded_of != 0) continue;
        tests::on_first_mesh(all, loaded_of, "mpi", [&](distributed::MeshCommunicators& mesh) {
          MemoryLedger ledger;
          TinyTraining training({.model = smallest_gpt2(), .stage = 4 - stage}, mesh.mesh(), ledger);
          CHECK(train::load_state(path + "/state.h5", training.engine(), *mesh.all).empty());
          int wrong = 0;
          number_elements(training, false, wrong);
          INFO("saved in groups of " << of_group << " under stage " << stage << ", loaded in groups of " << loaded_of);
          CHECK(wrong == 0);
          CHECK(holds_equal_copies(training));
        });
      }
    }
  }
}

TEST_CASE("a file knows no precision: saved in one, loaded in the other, master and moments are equal in bytes") {
  const SharedFolder folder;
  int numbered = 0;
  for (const auto saved : {Precision::f32, Precision::bf16, Precision::fp16}) {
    for (int stage = 0; stage <= 3; ++stage) {
      const std::string path = folder / (std::string(name_of(saved)) + std::to_string(stage));
      tests::on_first_ranks(1 + stage, "mpi", [&](distributed::Communicator& comm) {
        MemoryLedger ledger;
        TinyTraining training({.model = smallest_gpt2(), .precision = saved, .stage = stage}, comm, ledger);
        number_elements(training, true, numbered);
        train::save_checkpoint(path, training.engine(), record_of(stage));
      });
      tests::on_first_ranks(3, "mpi", [&](distributed::Communicator& comm) {
        for (int other = 0; other < 8; ++other) {
          MemoryLedger ledger;
          const auto loaded = other < 4 ? Precision::f32 : Precision::bf16;
          TinyTraining training({.model = smallest_gpt2(), .precision = loaded, .stage = other % 4}, comm, ledger);
          CHECK(train::load_state(path + "/state.h5", training.engine(), comm).empty());
          int wrong = 0;
          number_elements(training, false, wrong);
          INFO("saved in " << name_of(saved) << ", loaded in " << name_of(loaded) << " under stage " << other % 4);
          CHECK(wrong == 0);
          CHECK(holds_equal_copies(training));
        }
      });
    }
  }
}

namespace {

/// A run that saves after step 2 and continues has the same bits at the end as a run that resumes from that checkpoint.
void check_restart(const TinyRun& run, const std::string& path, distributed::Communicator& comm,
                   const distributed::Ranks& ranks) {
  MemoryLedger ledger;
  TinyTraining continuous(run, comm, ledger);
  continuous.result_of_steps(1, 2);
  train::CheckpointSaver saver(continuous.engine(), continuous.engine().staging(),
                               distributed::make_control_communicator(ranks, 60.0));
  CHECK(saver.asynchronous() == run.staged);
  io::CheckpointRecord record = record_of(2);
  record.loss_scale = continuous.engine().loss_scaler().state();
  saver.begin({std::make_shared<io::HeldFolder>(path, nullptr), record, {}, 0});
  const TinyResult wanted = continuous.result_of_steps(3, 5);  // at the same time as an asynchronous save
  const auto report = saver.wait();
  REQUIRE(report);
  REQUIRE(!report->problem);
  CHECK(report->step == 2);
  CHECK(report->stall_s <= report->seconds);
  MemoryLedger again;
  const auto manifest = io::verify_checkpoint(comm, report->folder);
  TinyRun from_there = run;
  from_there.loss_scaler.restore(manifest.record.loss_scale);
  TinyTraining restarted(from_there, comm, again);
  CHECK(manifest.record.step == 2);
  CHECK(manifest.record.tokens == 70);
  CHECK(train::load_state(report->folder + "/state.h5", restarted.engine(), comm).empty());
  CHECK(manifest.record.loss_scale == record.loss_scale);
  CHECK(restarted.result_of_steps(3, 5) == wanted);
  CHECK(restarted.engine().loss_scaler().state() == continuous.engine().loss_scaler().state());
}

}  // namespace

TEST_CASE(
    "a run that stops after step 2 and goes on gives the bits of one that never stopped, saved beside it or not") {
  const SharedFolder folder;
  for (const std::string optimizer : {"adamw", "sgd"}) {
    for (const int micro_steps : {1, 3}) {
      for (int kind = 0; kind < 8; ++kind) {
        TinyRun run{.model = smallest_gpt2(),
                    .stage = kind / 2,
                    .micro_steps = micro_steps,
                    .steps = 5,
                    .optimizer = optimizer};
        run.staged = kind % 2 == 1;
        const std::string path = folder / (optimizer + std::to_string(10 * micro_steps + kind));
        tests::on_first_ranks(3, "mpi", [&](auto& comm, const auto& ranks) { check_restart(run, path, comm, ranks); });
      }
    }
  }
}

TEST_CASE("a run in bf16 that stops and goes on gives the bits of one that never stopped") {
  const SharedFolder folder;
  for (int stage = 0; stage <= 3; ++stage) {
    const TinyRun run{.model = smallest_gpt2(),
                      .precision = Precision::bf16,
                      .stage = stage,
                      .micro_steps = 2,
                      .steps = 5,
                      .staged = stage % 2 == 1};
    const std::string path = folder / std::to_string(stage);
    tests::on_first_ranks(3, "mpi", [&](auto& comm, const auto& ranks) { check_restart(run, path, comm, ranks); });
  }
}

TEST_CASE(
    "a run in fp16 that stops within a window of the loss scale goes on in its bits, the scale moving behind it") {
  const SharedFolder folder;
  TinyRun run{.model = smallest_gpt2(),
              .precision = Precision::fp16,
              .stage = 2,
              .steps = 5,
              .loss_scaler = train::LossScaler::dynamic(3, 0x1p17)};
  tests::on_first_ranks(3, "mpi", [&](auto& comm, const distributed::Ranks& ranks) {
    check_restart(run, folder / "fp16", comm, ranks);
    MemoryLedger ledger;
    TinyTraining other(run, comm, ledger);
    other.result_of_steps(1, 5);
    CHECK(other.engine().loss_scaler().state() == io::LossScale{0x1p18, 2});
    run.precision = Precision::bf16;
    TinyTraining wide(run, comm, ledger);
    CHECK(train::load_state(folder / "fp16/step_000000002/state.h5", wide.engine(), comm).empty());
  });
}

TEST_CASE("what is saved is the state at begin(), whatever training does to it while it is written") {
  const SharedFolder folder;
  const auto hashes = [&](const std::string& name, bool staged) {
    std::map<std::string, std::string> datasets;
    tests::on_first_ranks(2, "mpi", [&](auto& comm, const distributed::Ranks& ranks) {
      MemoryLedger ledger;
      TinyTraining training({.model = smallest_gpt2(), .stage = 1, .staged = staged}, comm, ledger);
      training.result_of_steps(1, 1);
      train::CheckpointSaver saver(training.engine(), training.engine().staging(),
                                   distributed::make_control_communicator(ranks, 60.0));
      saver.begin({std::make_shared<io::HeldFolder>(folder / name, nullptr), record_of(1), {}, 0});
      int wrong = 0;
      number_elements(training, true, wrong);
      datasets = io::verify_checkpoint(comm, saver.wait()->folder).datasets;
    });
    return datasets;
  };
  CHECK(hashes("beside", true) == hashes("at once", false));
}

TEST_CASE("a save that fails beside the training is reported to every rank when all have ended") {
  const SharedFolder folder;
  tests::on_first_ranks(test::world_size(), "mpi", [&](auto& comm, const distributed::Ranks& ranks) {
    MemoryLedger ledger;
    TinyTraining training({.model = smallest_gpt2(), .stage = 3, .staged = true}, comm, ledger);
    train::CheckpointSaver saver(training.engine(), training.engine().staging(),
                                 distributed::make_control_communicator(ranks, 60.0));
    CHECK(!saver.ended(comm));
    const auto run_folder = std::make_shared<io::HeldFolder>(folder.path(), nullptr);
    for (const bool exists : {false, true}) {
      saver.begin({run_folder, record_of(7), {}, 0});
      CHECK_THROWS_WITH(saver.begin({run_folder, record_of(8), {}, 0}), ContainsSubstring("under way"));
      auto report = saver.ended(comm);
      while (!report) report = saver.ended(comm);
      CHECK(report->problem.has_value() == exists);
      if (report->problem) CHECK_THAT(report->problem->what(), ContainsSubstring("step_000000007: exists already"));
    }
    CHECK(!saver.wait());
  });
}

TEST_CASE("staging that is too small for the state is refused with what it needs") {
  tests::on_first_ranks(1, "mpi", [&](distributed::Communicator& comm) {
    MemoryLedger ledger(MemoryLedger::Mode::plan);
    tests::TinyRun run{.model = tests::tiny_gpt2()};
    run.model.layers = 1;
    run.model.dim = 160;
    run.model.vocab = 64;
    run.model.seq = 8;
    TinyTraining training(run, comm, ledger);
    const auto groups = train::owned_state(training.engine());
    CHECK_THROWS_WITH(
        train::Staging(groups, 3, ledger),
        "checkpoint.staging_mib = 3: a rank's share of the state needs 4 MiB; accepted are that and more, or 0 for "
        "what it needs; checkpoint.async = false and more ranks need less");
    const std::int64_t before = ledger.bytes(Memory::staging);
    const train::Staging staging(groups, 4, ledger);
    CHECK(staging.bytes() == ledger.bytes(Memory::staging) - before);
  });
}

TEST_CASE("a checkpoint without this optimizer's states loads weights only, and names the absent") {
  const SharedFolder folder;
  tests::on_first_ranks(2, "mpi", [&](distributed::Communicator& comm) {
    MemoryLedger ledger;
    TinyTraining adamw({.model = tests::tiny_llama(), .stage = 2}, comm, ledger);
    adamw.result();
    train::save_checkpoint(folder / "adamw", adamw.engine(), record_of(3));
    TinyTraining sgd({.model = tests::tiny_llama(), .stage = 0, .optimizer = "sgd"}, comm, ledger);
    const auto absent = train::load_state(folder / "adamw/state.h5", sgd.engine(), comm);
    CHECK(absent.groups == std::vector<std::string>{"optimizer/momentum_buffer"});
    CHECK(sgd.my_weights() == adamw.my_weights());
  });
}

TEST_CASE("a failing save is every rank's, and leaves nothing behind") {
  const SharedFolder folder;
  tests::on_first_ranks(test::world_size(), "mpi", [&](distributed::Communicator& comm) {
    MemoryLedger ledger;
    TinyTraining training({.model = tests::tiny_gpt2(), .stage = 3}, comm, ledger);
    train::save_checkpoint(folder / "step_1", training.engine(), record_of(1));
    CHECK_THROWS_WITH(train::save_checkpoint(folder / "step_1", training.engine(), record_of(1)),
                      ContainsSubstring("exists already"));
    CHECK_THROWS_WITH(train::save_checkpoint("/proc/no/step_1", training.engine(), record_of(1)),
                      ContainsSubstring("cannot create"));
    CHECK(!std::filesystem::exists(folder / "step_1.partial"));
  });
}

TEST_CASE("each difference between a deck and a checkpoint is named") {
  const io::CheckpointRecord saved{
      .global_batch = 8, .model = R"({"arch": "gpt2", "dim": 16})", .tokenizer = "bytes 1"};
  io::CheckpointRecord mine = saved;
  CHECK(train::disagreements(saved, mine).empty());
  mine.global_batch = 9;
  mine.tokenizer = "bytes 2";
  mine.model = R"({"arch": "gpt2", "dim": 32, "vocab": 7})";
  CHECK(train::disagreements(saved, mine) ==
        std::vector<std::string>{"model.dim is 32 and was 16", "model.vocab is 7 and was not given",
                                 "the tokenizer is bytes 2 and was bytes 1", "the global batch is 9 and was 8"});
  io::CheckpointRecord scaled = saved;
  scaled.model = R"({"arch": "gpt2", "dim": 16, "rope_scaling": {"factor": 8.0}})";
  CHECK(train::disagreements(scaled, saved) ==
        std::vector<std::string>{R"(model.rope_scaling is not given and was {"factor":8.0})"});
}

TEST_CASE("what bits depend on and is another one is named, and nothing else") {
  const io::CheckpointRecord saved{
      .step = 7, .exactness = {{"train.micro_batch", "2"}, {"the number of ranks", "2"}, {"products", "AMX"}}};
  io::CheckpointRecord mine = saved;
  CHECK(train::changes_since(saved, mine).empty());
  mine.exactness.erase("products");
  mine.exactness["of a later version"] = "1";
  CHECK(train::changes_since(saved, mine).empty());
  mine.exactness = {{"the number of ranks", "3"}, {"train.micro_batch", "1"}, {train::kArithmetic, "2"}};
  CHECK(train::changes_since(saved, mine).size() == 3);
  CHECK(train::changes_since(saved, mine).at(0) == "the number of ranks is 3 and was 2 at step 7");
  CHECK(train::changes_since(saved, mine).at(1) == "the version of the arithmetic is 2 and was 1 at step 7");
  CHECK(train::changes_since({}, saved).empty());
}

TEST_CASE("a run that goes on with other ranks, stages and back ends, twice, has the bits it would have had") {
  struct Leg {
    int ranks, stage;
    const char* backend;
  };
  const SharedFolder folder;
  for (const auto precision : {Precision::f32, Precision::bf16, Precision::fp16}) {
    TinyRun run{.model = smallest_gpt2(), .precision = precision, .micro_batch = 1, .steps = 6};
    if (precision == Precision::fp16) run.loss_scaler = train::LossScaler::fixed(0x1p10);
    TinyResult whole;
    std::string weights;
    tests::on_first_ranks(1, "mpi", [&](distributed::Communicator& comm) {
      MemoryLedger ledger;
      TinyTraining training(run, comm, ledger);
      whole = training.result();
      weights = training.all_weights();
    });
    std::int64_t step = 0;
    for (const Leg& leg : {Leg{4, 3, "shm"}, Leg{1, 0, "mpi"}, Leg{3, 2, "mpi"}}) {
      run.stage = leg.stage;
      const std::string from = folder / (std::string(name_of(precision)) + std::to_string(step));
      const std::string to = folder / (std::string(name_of(precision)) + std::to_string(step + 2));
      tests::on_first_ranks(leg.ranks, leg.backend, [&](distributed::Communicator& comm) {
        MemoryLedger ledger;
        TinyTraining training(run, comm, ledger);
        if (step > 0) CHECK(train::load_state(from + "/state.h5", training.engine(), comm).empty());
        const TinyResult part = training.result_of_steps(step + 1, step + 2);
        train::save_checkpoint(to, training.engine(), record_of(step + 2));
        const std::string reached = training.all_weights();
        if (comm.rank() > 0) return;
        INFO(name_of(precision) << ", from step " << step << " on " << leg.ranks << " ranks, stage " << leg.stage);
        CHECK(std::equal(part.losses.begin(), part.losses.end(), whole.losses.begin() + step));
        CHECK(std::equal(part.norms.begin(), part.norms.end(), whole.norms.begin() + step));
        if (step == 4) CHECK(reached == weights);
      });
      step += 2;
    }
  }
}
