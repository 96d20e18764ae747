// SPDX-FileCopyrightText: The KoZeRO authors
// SPDX-License-Identifier: Apache-2.0
// test_disk_check.cpp: state on a disk that is not what the run wrote goes into no checkpoint, weights file or hash.
#include <catch2/catch_test_macros.hpp>
#include <catch2/matchers/catch_matchers_string.hpp>
#include <filesystem>
#include <memory>
#include <span>
#include <vector>

#include <kozero/train/checkpoint.hpp>
#include <kozero/train/run_files.hpp>
#include <support/thrown.hpp>
#include "src/train/disk_check.hpp"

#include "groups.hpp"
#include "shared_folder.hpp"
#include "tiny_run.hpp"

using namespace kozero;
using Catch::Matchers::ContainsSubstring;
using tests::SharedFolder;
using tests::thrown_by;
using tests::TinyRun;
using tests::TinyTraining;

namespace {

constexpr const char* kChanged =
    ": its file on disk (zero.offload_*) was changed or damaged after the run wrote it; resume from the newest "
    "checkpoint (each is compared when it is written), or begin anew if there is none, with another "
    "zero.offload_dir if the disk fails";

void flip(float* value) { *reinterpret_cast<std::uint32_t*>(value) ^= 1U << 3; }

/// A run with all its state on a disk.
TinyRun run_on_disk() {
  return {.model = tests::tiny_gpt2(), .stage = 3, .offload = tests::offloaded_to(tests::Kind::disk, true)};
}

/// The values of the unit's shard in the array that the model reads.
template <class State>
float* stored_of(State& state, int unit) {
  return reinterpret_cast<float*>(state.weights().stored().shard(unit).data());
}

/// Saves with one bit flipped at `value` on the last rank, and again with the bit as it was.
void expect_refused(TinyTraining& training, const std::string& folder, float* value, const std::string& array) {
  train::Engine& engine = training.engine();
  const bool flips = engine.comm().rank() + 1 == engine.comm().size();
  const auto held = std::make_shared<io::HeldFolder>(folder, nullptr);
  const auto save = [&] { train::save_checkpoint(folder + "/step_000000003", engine, {.step = 3, .model = "{}"}); };
  const auto save_weights = [&] { train::save_weights(*held, engine, engine.comm(), {.model = "{}", .step = 3}); };
  const std::string name = array + " of rank " + std::to_string(engine.comm().size() - 1) + " in .";
  if (flips) flip(value);
  const bool is_parameter = array == "weights" || array == "master weights";
  for (const auto& error : {thrown_by(save), thrown_by([&] { engine.require_unchanged_disk(); }),
                            is_parameter ? thrown_by(save_weights) : thrown_by(save)}) {
    CHECK(error.text == name + kChanged);
    CHECK(error.status == 3);
  }
  for (const char* file : {"/step_000000003", "/step_000000003.partial", "/weights.h5", "/weights.h5.partial"}) {
    if (engine.comm().rank() == 0) CHECK_FALSE(std::filesystem::exists(folder + file));  // which removes them
  }
  if (flips) flip(value);
  save();
  save_weights();
  CHECK(std::filesystem::exists(folder + "/weights.h5"));
}

/// A folder of its own for a group of ranks.
std::string folder_of(const SharedFolder& all, const distributed::Communicator& comm, const std::string& name) {
  const std::string folder = all / (name + std::to_string(comm.size()));
  std::filesystem::create_directories(folder);
  return folder;
}

}  // namespace

TEST_CASE("sums of the values that a file takes are compared with the hash of the whole array") {
  if (!kHostIsDevice) return;
  DiskMemory disk(".", "rank 0");
  constexpr std::int64_t kExtent = 200;
  std::vector<Vector<float>> arrays;
  for (const char* label : {"exp_avg", "weights", "exp_avg_sq"}) {
    arrays.emplace_back(static_cast<float*>(disk.share(label, kExtent * sizeof(float))), kExtent);
    for (std::size_t i = 0; i < kExtent; ++i) arrays.back()(i) = static_cast<float>(i + arrays.size());
  }
  std::vector<float> in_memory(kExtent, 1.0F);
  arrays.emplace_back(in_memory.data(), kExtent);
  const auto words = [&](std::size_t i, std::int64_t first, std::int64_t extent) {
    return train::DiskCheck::Array(words_of(slice(arrays[i], first, extent)));
  };
  train::DiskCheck check({{words(0, 0, 64), words(2, 0, 64)}, {words(0, 64, 136), words(3, 0, 64)}},
                         {words(1, 0, kExtent)});
  check.record_all();
  const auto read = [&](std::size_t i, std::size_t first, std::size_t count) {
    check.read(std::span<const float>(arrays[i].data() + first, count));
  };
  const auto text = [&] { return thrown_by([&] { check.require_unchanged(); }).text; };
  const auto read_all = [&] {
    check.begin();
    read(0, 150, 50);  // in any order, with gaps, over the end of a part
    read(0, 3, 100);
    read(3, 0, 200);
  };
  read_all();
  check.require_unchanged();
  for (const std::size_t index : {0U, 2U, 3U, 63U, 64U, 102U, 120U, 150U, 199U}) {
    INFO("element " << index);
    flip(&arrays[0](index));
    read_all();
    CHECK(text() == std::string("exp_avg of rank 0 in .") + kChanged);
    flip(&arrays[0](index));
  }
  flip(&arrays[2](5));  // an array that no file takes
  read_all();
  check.require_unchanged();
  CHECK_THAT(check.first_changed(), ContainsSubstring("exp_avg_sq of rank 0"));
  flip(&arrays[1](5));  // one that no update writes
  read_all();
  CHECK_THAT(text(), ContainsSubstring("weights of rank 0"));
  check.record_all();
  read_all();
  check.require_unchanged();
}

TEST_CASE("a changed file of state on a disk is in no checkpoint and no weights file") {
  if (!kHostIsDevice) return;
  const SharedFolder folder;
  tests::on_each_group("mpi", [&](distributed::Communicator& comm) {
    for (const char* array : {"exp_avg", "exp_avg_sq", "weights"}) {
      MemoryLedger ledger;
      TinyTraining training(run_on_disk(), comm, ledger);
      training.result();
      INFO(array << " on " << comm.size() << " ranks");
      const auto states = training.engine().optimizer_states();
      float* value = states[array == std::string("exp_avg_sq") ? 1 : 0].values.data();
      if (array == std::string("weights")) training.with_state([&](auto& state) { value = stored_of(state, 1); });
      expect_refused(training, folder_of(folder, comm, array), value, array);
    }
  });
}

TEST_CASE("frozen weights on a disk are compared too, before the first step as well") {
  if (!kHostIsDevice) return;
  const SharedFolder folder;
  tests::on_each_group("mpi", [&](distributed::Communicator& comm) {
    for (const std::int64_t steps : {0, 2}) {
      TinyRun run = run_on_disk();
      run.model.freeze = {"h.0.*"};
      run.steps = steps;
      MemoryLedger ledger;
      TinyTraining training(run, comm, ledger);
      training.result();
      float* value = nullptr;
      training.with_state([&](auto& state) { value = stored_of(state, 1); });
      expect_refused(training, folder_of(folder, comm, std::to_string(steps) + "_"), value, "weights");
    }
  });
}

TEST_CASE("rounded weights on a disk are compared where they are read, and masters are saved") {
  if (!kHostIsDevice) return;
  const SharedFolder folder;
  tests::on_first_ranks(1, "mpi", [&](distributed::Communicator& comm) {
    TinyRun run = run_on_disk();
    run.precision = Precision::bf16;
    MemoryLedger ledger;
    TinyTraining training(run, comm, ledger);
    training.result();
    training.with_state([&](auto& state) { flip(stored_of(state, 1)); });
    train::save_checkpoint(folder / "step_1", training.engine(), {.step = 3, .model = "{}"});
    CHECK_THAT(thrown_by([&] { training.engine().require_unchanged_disk(); }).text,
               ContainsSubstring("weights of rank 0"));
    CHECK_THAT(thrown_by([&] { training.engine().step(4); }).text, ContainsSubstring("weights of rank 0"));
  });
}
