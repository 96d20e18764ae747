// SPDX-FileCopyrightText: The KoZeRO authors
// SPDX-License-Identifier: Apache-2.0
// test_trained_weights.cpp: the run, checkpoint or weights file that a path names.
#include <catch2/catch_test_macros.hpp>

#include <kozero/core/error.hpp>
#include <kozero/train/run_files.hpp>
#include <support/scratch_folder.hpp>
#include "io/checkpoint/checkpoint.hpp"
#include "io/checkpoint/weights_file.hpp"

using namespace kozero;
namespace fs = std::filesystem;

namespace {

std::string deck_in(const std::string& folder) {
  return "run.dir = \"" + folder +
         "\"\nrun.steps = 1\nmodel.layers = 1\nmodel.dim = 8\nmodel.heads = 2\nmodel.seq = 4\n"
         "data.synthetic = true\ntrain.global_batch = 1\n";
}

void put_run(const tests::ScratchFolder& scratch, const std::string& name, bool finished) {
  scratch.put(name + "/deck.toml", deck_in(scratch / name));
  if (finished) scratch.put(name + "/weights.h5", "");
}

}  // namespace

TEST_CASE("a folder, a file in it and its own deck name that run; the user's deck names its newest finished one") {
  const tests::ScratchFolder scratch("trained");
  const std::string deck = scratch.put("my.toml", deck_in(scratch / "run"));
  CHECK_THROWS_AS(train::find_run(deck), Error);
  put_run(scratch, "run", true);
  CHECK(train::find_run(deck).folder == scratch / "run");
  put_run(scratch, "run-2", true);
  put_run(scratch, "run-3", false);
  CHECK(train::find_run(deck).folder == scratch / "run-2");
  CHECK(train::find_run(deck).weights == scratch / "run-2/weights.h5");
  for (const char* path : {"run", "run/weights.h5", "run/deck.toml"}) {
    CHECK(train::find_run(scratch / path).folder == scratch / "run");
    CHECK(train::find_run(scratch / path).weights == scratch / "run/weights.h5");
  }
  CHECK_THROWS_AS(train::find_run(scratch / "run-3"), Error);
  const std::string slashed = scratch.put("slashed.toml", deck_in(scratch / "run/"));
  CHECK(train::find_run(slashed).folder == scratch / "run-2");
}

TEST_CASE("a bare file name lies in the folder one is in") {
  const tests::ScratchFolder scratch("trained_here");
  put_run(scratch, "run", true);
  const fs::path before = fs::current_path();
  fs::current_path(scratch / "run");
  CHECK(train::find_run("weights.h5").folder == ".");
  fs::current_path(before);
}

namespace {

/// A checkpoint that can be found: only its manifest.
void put_checkpoint(const tests::ScratchFolder& scratch, const std::string& run, std::int64_t step) {
  const std::string folder = fs::path(io::checkpoint_folder(run, step)).string();
  io::Manifest manifest;
  manifest.record.step = step;
  manifest.record.model = "{}";
  manifest.files[io::kStateFile] = {};
  scratch.put(folder + "/manifest.json", io::manifest_text(manifest));
  scratch.put(folder + "/state.h5", "");
  scratch.put(folder + "/deck.toml", "");
}

/// A weights file of no tensors.
void put_weights(const std::string& path, std::int64_t step) {
  io::WeightsStream(path, {}, {.model = "{}", .step = step}).close();
}

}  // namespace

TEST_CASE("a run's weights are those of the later step: its weights file or its newest checkpoint") {
  const tests::ScratchFolder scratch("trained_later");
  scratch.put("run/deck.toml", deck_in(scratch / "run"));
  put_checkpoint(scratch, "run", 4);
  put_checkpoint(scratch, "run", 8);
  fs::create_directories(scratch / "run/step_000000009");  // no manifest: not complete
  const std::string newest = scratch / "run/step_000000008";
  CHECK(train::find_run(scratch / "run").weights == newest + "/state.h5");
  CHECK(train::find_run(scratch / "run").deck == newest + "/deck.toml");
  put_weights(scratch / "run/weights.h5", 7);
  CHECK(train::find_run(scratch / "run").weights == newest + "/state.h5");
  put_weights(scratch / "run/weights.h5", 8);
  CHECK(train::find_run(scratch / "run").weights == scratch / "run/weights.h5");
  CHECK(train::find_run(scratch / "run").deck == scratch / "run/deck.toml");
  CHECK(train::find_run(scratch / "run/step_000000004").weights == scratch / "run/step_000000004/state.h5");
  CHECK(train::find_run(scratch / "run/step_000000004/state.h5").folder == scratch / "run/step_000000004");
}

TEST_CASE("a weights file may lie alone") {
  const tests::ScratchFolder scratch("trained_alone");
  scratch.put("w.h5", "");
  const auto files = train::find_run(scratch / "w.h5");
  CHECK(files.weights == scratch / "w.h5");
  CHECK(files.deck.empty());
  CHECK(files.tokenizer.empty());
}
