// SPDX-FileCopyrightText: The KoZeRO authors
// SPDX-License-Identifier: Apache-2.0
// test_checkpoint_folders.cpp: a checkpoint with changed bytes is rejected in one line, and skipped in a search.
#include <catch2/catch_approx.hpp>
#include <catch2/catch_test_macros.hpp>
#include <catch2/matchers/catch_matchers_string.hpp>

#include <filesystem>
#include <limits>

#include <kozero/distributed/communicator.hpp>
#include <support/scratch_folder.hpp>
#include <support/thrown.hpp>
#include "io/checkpoint/checkpoint.hpp"
#include "io/checkpoint/weights_file.hpp"
#include "io/hdf5/handle.hpp"
#include "io/posix/system_resources.hpp"

#include "weights_case.hpp"

namespace kozero::io {

using namespace tests;

namespace fs = std::filesystem;
using Catch::Matchers::ContainsSubstring;

namespace {

class Checkpoints {
 public:
  Checkpoints() : folder("checkpoints") {}
  std::string save(std::int64_t step, std::optional<double> validation_loss = {}, const std::string& provenance = "") {
    const ParameterTable table = small_table();
    RankSlices mine(table, 0, 1);
    mine.set_values();
    const CheckpointRecord record{.step = step,
                                  .tokens = 10 * step,
                                  .seed = 7,
                                  .model = R"({"dim":16})",
                                  .tokenizer = "bytes 0",
                                  .validation_loss = validation_loss,
                                  .provenance = provenance};
    const std::string path = checkpoint_folder(folder.path(), step);
    write_checkpoint(comm, path, table, {record, {{kParameterGroup, mine.readable()}}, {{"deck.toml", "x = 1\n"}}});
    return path;
  }
  std::string verify(const std::string& path);
  ScratchFolder folder;
  std::unique_ptr<distributed::Communicator> self = distributed::make_self_communicator();
  distributed::Communicator& comm = *self;
};

std::string Checkpoints::verify(const std::string& path) {
  const auto error = thrown_by([&] { verify_checkpoint(comm, path); });
  CHECK(error.status == 3);
  CHECK(error.text.find('\n') == std::string::npos);
  return error.text;
}

void flip(const std::string& path, std::size_t byte) {
  std::string bytes = bytes_of(path);
  bytes[byte] = static_cast<char>(bytes[byte] ^ 1);
  std::ofstream(path, std::ios::binary) << bytes;
}

}  // namespace

TEST_CASE("a checkpoint reads back as it was written") {
  Checkpoints all;
  const std::string path = all.save(1000);
  CHECK(fs::path(path).filename() == "step_000001000");
  const Manifest manifest = verify_checkpoint(all.comm, path);
  CHECK(manifest.record.step == 1000);
  CHECK(manifest.record.tokens == 10000);
  CHECK(manifest.record.seed == 7);
  CHECK(manifest.record.model == R"({"dim":16})");
  CHECK(manifest.files.size() == 2);
  CHECK(manifest.files.at(kStateFile).size == static_cast<std::int64_t>(fs::file_size(path + "/state.h5")));
  CHECK(!fs::exists(path + ".partial"));
}

TEST_CASE("a dataset's hash is that of its values alone, and one that spans blocks is the hash of their hashes") {
  Checkpoints all;
  const Manifest manifest = verify_checkpoint(all.comm, all.save(1));
  const ParameterTable table = small_table();
  CHECK(manifest.datasets.size() == table.rows().size());
  for (const auto& row : table.rows()) {
    std::vector<float> values;
    for (std::int64_t i = 0; i < row.extent(); ++i) values.push_back(value_of(row.unit, row.offset + i));
    const std::string bytes(reinterpret_cast<const char*>(values.data()), values.size() * sizeof(float));
    CHECK(manifest.datasets.at("parameters/" + row.name) == xxh3_128(xxh3_128(bytes)));
  }
  const std::string large(static_cast<std::size_t>(kBlockBytes) + 5, 'x');
  const std::string path = all.folder.put("large", "begin" + large);
  const auto hashes = hash_spans(all.comm, path, blocks_of(5, static_cast<std::int64_t>(large.size())));
  CHECK(hashes == std::vector<std::string>{xxh3_128(large.substr(5)), xxh3_128("xxxxx")});
}

TEST_CASE("a checkpoint of an older format is refused as such") {
  Checkpoints all;
  const std::string path = all.save(1);
  std::string text = bytes_of(path + "/manifest.json");
  text.replace(text.find("\"format_version\": 2"), 19, "\"format_version\": 1");
  std::ofstream(path + "/manifest.json") << text;
  CHECK_THAT(all.verify(path),
             ContainsSubstring("format_version 1, accepted is 2: an older version of KoZeRO wrote it"));
}

TEST_CASE("a disk that is too full for a checkpoint is found before anything is written") {
  // Other programs write to the same disk between the two calls.
  const auto free_there = static_cast<double>(free_disk_bytes("/tmp/not/there/yet"));
  CHECK(free_there == Catch::Approx(static_cast<double>(free_disk_bytes("/tmp"))).epsilon(0.05));
  CHECK(space_text(2048, 1) == "takes 2.0 KiB (2048 bytes) and 1 B (1 bytes) are free");
  Checkpoints all;
  ParameterTable table;
  table.add_unit("embedding", 0);
  table.add({.name = "wte", .shape = {std::int64_t{1} << 31, std::int64_t{1} << 20}});
  const auto error = thrown_by([&] {
    write_checkpoint(all.comm, all.folder / "step_1", table, {{.model = "{}"}, {{kParameterGroup, {}}}, {}});
  });
  CHECK(error.status == 4);
  CHECK_THAT(error.text,
             ContainsSubstring("step_1: not begun: the checkpoint takes 8192.0 TiB (9007199255789568 bytes) and "));
  CHECK(fs::is_empty(all.folder.path()));
}

TEST_CASE("any flipped bit of any file is found") {
  Checkpoints all;
  const std::string path = all.save(1);
  for (const std::string name : {"state.h5", "deck.toml", "manifest.json"}) {
    const std::string file = path + "/" + name;
    const std::size_t size = bytes_of(file).size();
    const std::size_t stride = name == "state.h5" ? 97 : 1;
    for (std::size_t byte = 0; byte + 1 < size; byte += stride) {
      flip(file, byte);
      const auto error = thrown_by([&] { verify_checkpoint(all.comm, path); });
      // The manifest's white space has no meaning and may change.
      INFO(name << ", byte " << byte << ": " << error.text);
      const bool blank = name == "manifest.json" && std::isspace(static_cast<unsigned char>(bytes_of(file)[byte] ^ 1));
      CHECK((error.status == 3 || blank));
      flip(file, byte);
    }
  }
  CHECK(verify_checkpoint(all.comm, path).record.step == 1);
}

TEST_CASE("verify() takes a checkpoint's folder and a weights file, and names the file that may be opened") {
  Checkpoints all;
  const std::string folder = all.save(3), file = all.folder / "weights.h5";
  const ParameterTable table = small_table();
  RankSlices mine(table, 0, 1);
  mine.set_values();
  write_weights(all.comm, file, table, mine.readable(), {.model = R"({"dim":16})", .step = 4, .tokens = 40});
  for (const std::string& path : {folder, file}) {
    const bool is_folder = path == folder;
    const SavedState saved = verify(all.comm, path);
    CHECK(saved.path == path);
    CHECK(saved.is_checkpoint == is_folder);
    CHECK(saved.state_file() == (is_folder ? folder + "/state.h5" : file));
    CHECK(saved.manifest.record.step == (is_folder ? 3 : 4));
    CHECK(saved.manifest.record.model == R"({"dim":16})");
    CHECK(read_saved_state(path).manifest.record.tokens == (is_folder ? 30 : 40));
    CHECK(read_saved_state(all.comm, path).is_checkpoint == is_folder);
    flip(saved.state_file(), 5000);
    CHECK(thrown_by([&] { verify(all.comm, path); }).status == 3);
    CHECK(read_saved_state(path).is_checkpoint == is_folder);
  }
  CHECK(thrown_by([&] { verify(all.comm, all.folder / "none"); }).status == 3);
}

TEST_CASE("truncated, missing and other files are refused by name") {
  Checkpoints all;
  const std::string path = all.save(1);
  flip(path + "/state.h5", 3000);
  CHECK_THAT(all.verify(path), ContainsSubstring("state.h5: bytes 0 to ") && ContainsSubstring("(block 1 of 1)"));
  fs::resize_file(path + "/state.h5", 1000);
  CHECK_THAT(all.verify(path), ContainsSubstring("state.h5: 1000 bytes, the manifest says "));
  fs::remove(path + "/state.h5");
  CHECK_THAT(all.verify(path), ContainsSubstring("state.h5: cannot read: No such file"));
  fs::resize_file(path + "/manifest.json", 200);
  CHECK_THAT(all.verify(path), ContainsSubstring("manifest.json: no JSON from byte "));
  std::ofstream(path + "/manifest.json") << "{}";
  CHECK_THAT(all.verify(path), ContainsSubstring("manifest.json: ") && ContainsSubstring("format_version"));
  fs::remove(path + "/manifest.json");
  CHECK_THAT(all.verify(path), ContainsSubstring("manifest.json: cannot open: No such file"));
}

TEST_CASE("the newest complete one is found, broken ones are named") {
  Checkpoints all;
  std::vector<std::string> skipped;
  CHECK(!newest_complete(all.comm, all.folder / "nowhere", skipped));
  CHECK(!newest_complete(all.comm, all.folder.path(), skipped));
  for (const std::int64_t step : {8, 9, 10, 1000000000}) all.save(step);
  fs::remove(all.folder / "step_1000000000/manifest.json");
  flip(all.folder / "step_000000010/state.h5", 2500);
  fs::create_directories(all.folder / "step_000000011.partial");
  const auto found = newest_complete(all.comm, all.folder.path(), skipped);
  REQUIRE(found);
  CHECK(found->manifest.record.step == 9);
  CHECK(found->folder == all.folder / "step_000000009");
  REQUIRE(skipped.size() == 2);
  CHECK_THAT(skipped[0], ContainsSubstring("step_1000000000/manifest.json: cannot open"));
  CHECK_THAT(skipped[1], ContainsSubstring("step_000000010/state.h5: bytes"));
}

TEST_CASE("pruning keeps the newest and clears leftovers; later ones are set aside, never overwritten") {
  Checkpoints all;
  for (const std::int64_t step : {1, 2, 3, 4}) all.save(step);
  fs::create_directories(all.folder / "step_000000009.partial/x");
  prune_checkpoints(all.folder.path(), 0);
  CHECK(!fs::exists(all.folder / "step_000000009.partial"));
  CHECK(checkpoints_in(all.folder.path()).size() == 4);
  prune_checkpoints(all.folder.path(), 3);
  CHECK(checkpoints_in(all.folder.path()).back() == all.folder / "step_000000002");
  const auto again = thrown_by([&] { all.save(4); });
  CHECK(again.status == 4);
  CHECK_THAT(again.text, ContainsSubstring("exists already"));
  CHECK(set_aside_after(all.folder.path(), 3) == std::vector<std::string>{all.folder / "step_000000004.old"});
  all.save(4);
  CHECK(set_aside_after(all.folder.path(), 3) == std::vector<std::string>{all.folder / "step_000000004.old-2"});
  CHECK(checkpoints_in(all.folder.path()).size() == 2);
}

TEST_CASE("the checkpoint with the lowest validation loss is found by the manifests, and pruning spares it") {
  Checkpoints all;
  const std::string run = all.folder.path();
  all.save(1);
  CHECK(!best_checkpoint(run));
  CHECK(!best_checkpoint(all.folder / "nowhere"));
  all.save(2, 3.5);
  const std::string best = all.save(3, 2.25);
  all.save(4, std::numeric_limits<double>::quiet_NaN());
  all.save(5, 2.25);  // not lower: the earlier checkpoint stays the best
  all.save(6, 4.0);
  all.save(7);
  REQUIRE(best_checkpoint(run));
  CHECK(best_checkpoint(run)->folder == best);
  CHECK(best_checkpoint(run)->manifest.record.validation_loss == 2.25);
  prune_checkpoints(run, 2, best);
  CHECK(checkpoints_in(run) == std::vector<std::string>{checkpoint_folder(run, 7), checkpoint_folder(run, 6), best});
  // Once a better one is complete, the previous best is removed. If the best is among the newest, no other is kept.
  const std::string better = all.save(8, 2.0);
  CHECK(best_checkpoint(run)->folder == better);
  prune_checkpoints(run, 2, better);
  CHECK(checkpoints_in(run) == std::vector<std::string>{better, checkpoint_folder(run, 7)});
  fs::resize_file(better + "/manifest.json", 100);
  CHECK(!best_checkpoint(run));
}

TEST_CASE("a manifest keeps its provenance, on which no dataset's hash depends") {
  Checkpoints all;
  const Manifest with = read_manifest(all.save(1, 0.1 + 0.2, R"({"commit":"0123456789ab+changes","hosts":"a, b"})"));
  const Manifest without = read_manifest(all.save(2));
  CHECK(with.record.provenance == R"({"commit":"0123456789ab+changes","hosts":"a, b"})");
  CHECK(with.record.validation_loss == 0.1 + 0.2);
  CHECK(without.record.provenance.empty());
  CHECK(!without.record.validation_loss);
  CHECK(with.datasets == without.datasets);
}

TEST_CASE("a checkpoint's step is its manifest's, whatever its folder is called") {
  Checkpoints all;
  std::vector<std::string> skipped;
  for (const std::int64_t step : {10, 20, 30}) all.save(step);
  const auto path_of = [&](std::int64_t step) { return checkpoint_folder(all.folder.path(), step); };
  fs::copy(path_of(20), path_of(100), fs::copy_options::recursive);
  CHECK(newest_complete(all.comm, all.folder.path(), skipped)->folder == path_of(30));
  fs::rename(path_of(30), path_of(5));
  auto found = newest_complete(all.comm, all.folder.path(), skipped);
  CHECK(found->folder == path_of(5));
  CHECK(found->manifest.record.step == 30);
  fs::remove_all(path_of(5));
  CHECK(newest_complete(all.comm, all.folder.path(), skipped)->folder == path_of(20));
  flip(path_of(20) + "/state.h5", 3000);
  found = newest_complete(all.comm, all.folder.path(), skipped);
  CHECK(found->folder == path_of(100));
  CHECK(skipped.size() == 1);

  // The loaded checkpoint stays, then gets its step's name. The broken checkpoint that had this name is kept.
  CHECK(set_aside_after(all.folder.path(), 15, path_of(100)) == std::vector<std::string>{path_of(20) + ".old"});
  CHECK(name_by_step(all.folder.path(), path_of(100) + "/", 20) == path_of(20));
  CHECK(verify_checkpoint(all.comm, path_of(20)).record.step == 20);
  CHECK(fs::exists(path_of(20) + ".old/manifest.json"));
  CHECK(!fs::exists(path_of(100)));
  // Not renamed: a checkpoint with the right name, one in another folder, and folders that are no checkpoint.
  CHECK(name_by_step(all.folder.path(), path_of(20), 20) == path_of(20));
  CHECK(name_by_step(all.folder / "nowhere", path_of(20), 21) == path_of(20));
  CHECK(name_by_step(all.folder.path(), all.folder / "weights.h5", 21) == all.folder / "weights.h5");
  CHECK(name_by_step(all.folder.path(), "", 0).empty());
}

TEST_CASE("whether a folder can be written is known without leaving anything there") {
  const ScratchFolder folder("writable");
  require_writable(folder / "not/there/yet");
  CHECK(fs::is_empty(folder.path()));
  const std::string file = folder.put("file", "x");
  for (const auto& path : {file + "/run", std::string("/proc/run")}) {
    const auto error = thrown_by([&] { require_writable(path); });
    CHECK(error.status == 4);
    CHECK_THAT(error.text, ContainsSubstring(": cannot make a file there: "));
  }
}

TEST_CASE("a file in memory has no name to leave behind, and its holes take nothing") {
  const ScratchFolder folder("memory_file");
  constexpr std::int64_t kFar = std::int64_t{1} << 33;
  const MemoryFile draft;
  CHECK(fs::read_symlink(draft.path()).string().starts_with("/memfd:"));
  std::ofstream(draft.path(), std::ios::binary) << "begin";
  FileDescriptor(draft.path(), FileDescriptor::Use::update).write_at("end", kFar);
  CHECK(FileDescriptor(draft.path(), FileDescriptor::Use::read).size() == kFar + 3);
  const std::string copy = folder / "copy";
  draft.copy_to(FileDescriptor(copy, FileDescriptor::Use::create));
  const FileDescriptor read(copy, FileDescriptor::Use::read);
  std::string bytes(3, ' ');
  read.read_at(bytes, kFar);
  CHECK(bytes == "end");
  read.read_at(bytes, 0);
  CHECK(bytes == "beg");
}

TEST_CASE("nothing is left of a save that fails") {
  Checkpoints all;
  const ParameterTable table = small_table();
  RankSlices mine(table, 0, 1);
  const CheckpointContents contents{{.model = "{}"}, {{kParameterGroup, mine.readable()}}, {{"no/such/folder", "x"}}};
  const auto error = thrown_by([&] { write_checkpoint(all.comm, all.folder / "step_1", table, contents); });
  CHECK(error.status == 4);
  CHECK_THAT(error.text,
             ContainsSubstring("; the checkpoint takes 1.0 MiB (") && ContainsSubstring(" bytes) are free"));
  CHECK(fs::is_empty(all.folder.path()));
}

}  // namespace kozero::io
