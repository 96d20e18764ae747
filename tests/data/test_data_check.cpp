// SPDX-FileCopyrightText: The KoZeRO authors
// SPDX-License-Identifier: Apache-2.0
// test_data_check.cpp: damage and bad ids are found by the rank that reads the block; the identity of the data does not
// depend on the number of ranks.
#include <catch2/catch_test_macros.hpp>
#include <catch2/matchers/catch_matchers_string.hpp>
#include <filesystem>
#include <fstream>
#include <thread>

#include <kozero/data/data_check.hpp>
#include <kozero/data/token_shard.hpp>

#include <support/thrown.hpp>
#include <train/groups.hpp>
#include <train/shared_folder.hpp>

using namespace kozero;
using Catch::Matchers::ContainsSubstring;
using data::DataCheck;
using tests::thrown_by;

namespace {

constexpr std::int64_t kTokens = 2 * io::kBlockBytes / 2 + 5000;  // three blocks

/// Writes a shard of three blocks whose token at `position` is `id`.
std::string shard_of(const tests::SharedFolder& folder, const std::string& name, std::int64_t position, Token id) {
  const std::string path = folder / name;
  std::vector<Token> tokens(kTokens, 3);
  tokens[static_cast<std::size_t>(position)] = id;
  data::TokenShardWriter writer(path, 1000);
  writer.append(tokens);
  writer.close();
  return path;
}

/// A shard that rank 0 of the world writes.
std::string shard(const tests::SharedFolder& folder, const std::string& name, std::int64_t position = 0, Token id = 1) {
  if (test::world_rank() == 0) shard_of(folder, name, position, id);
  MPI_Barrier(MPI_COMM_WORLD);
  return folder / name;
}

DataCheck::Shards opened(const std::vector<std::string>& paths, std::int64_t vocab = 1000) {
  return std::make_shared<const data::TokenShards>(paths, vocab);
}

}  // namespace

TEST_CASE("an id far into a shard ends in one error for all ranks, with file, position, id and vocabulary") {
  const tests::SharedFolder folder;
  for (const std::int64_t position : {io::kBlockBytes / 2 + 77, kTokens - 1}) {
    const auto path = shard(folder, std::to_string(position) + ".bin", position, 700);
    tests::on_each_group("mpi", [&](distributed::Communicator& comm) {
      DataCheck check({opened({path}, 256)}, comm);
      const auto error = thrown_by([&] { check.finish(comm); });
      CHECK(error.status == 3);
      CHECK(error.text == path + ": token " + std::to_string(position) + " is 700, outside the vocabulary of 256");
      DataCheck good({opened({path}, 701)}, comm);
      CHECK(thrown_by([&] { good.finish(comm); }).text.empty());
      CHECK(good.done());
    });
  }
}

TEST_CASE("a flipped bit is found in the background, by the rank whose block it is, of validation shards too") {
  const tests::SharedFolder folder;
  const auto good = shard(folder, "good.bin"), bad = shard(folder, "bad.bin");
  if (test::world_rank() == 0) {
    std::fstream file(bad, std::ios::in | std::ios::out | std::ios::binary);
    file.seekp(io::kBlockBytes + 12345);
    file.put('\x13');
  }
  MPI_Barrier(MPI_COMM_WORLD);
  tests::on_each_group("mpi", [&](distributed::Communicator& comm) {
    DataCheck check({opened({good}), opened({bad})}, comm);
    check.start();
    std::string text;
    while (text.empty() && !check.done()) {
      text = thrown_by([&] { check.look(); }).text;
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
    const int owner = (3 + 1) % comm.size();  // the rank of its second block, after three good blocks
    if (comm.rank() == owner) CHECK_THAT(text, ContainsSubstring("bad.bin: bytes 16777216 to 33554431 are not what"));
    if (comm.rank() != owner) CHECK(text.empty());
    comm.barrier();
  });
}

TEST_CASE("the data's identity depends on the bytes alone: not on ranks, paths or recorded hashes") {
  const tests::SharedFolder folder;
  const auto a = shard(folder, "a.bin"), b = shard(folder, "b.bin", 9000000, 2), c = shard(folder, "c.bin", 9000000, 2);
  if (test::world_rank() == 0) std::filesystem::remove(c + ".xxh3");
  MPI_Barrier(MPI_COMM_WORLD);
  std::vector<io::DataIdentity> all;
  tests::on_each_group("mpi", [&](distributed::Communicator& comm) {
    const auto identity = DataCheck({opened({a, b})}, comm).identity(comm);
    CHECK(identity.whole.size() == 16);
    CHECK(identity.sampled.size() == 32);
    all.push_back(identity);
    const auto swapped = DataCheck({opened({b, a})}, comm).identity(comm);
    CHECK(swapped.whole != identity.whole);
    CHECK_THAT(data::difference(identity, swapped), ContainsSubstring(" and was " + identity.whole));

    const auto repeated = [&](const std::vector<std::string>& paths) {
      return std::make_shared<const data::TokenShards>(paths, 1000, std::vector<std::size_t>{0, 1, 1});
    };
    const auto twice = DataCheck({repeated({a, b})}, comm).identity(comm);
    CHECK(twice.whole != identity.whole);
    CHECK(twice.sampled != identity.sampled);
    DataCheck unread_twice({repeated({a, c})}, comm);
    unread_twice.finish(comm);
    CHECK(unread_twice.identity(comm) == twice);

    DataCheck unread({opened({a, c})}, comm);
    CHECK(unread.identity(comm) == io::DataIdentity{identity.sampled, ""});
    CHECK(data::difference(identity, unread.identity(comm)).empty());
    unread.finish(comm);
    CHECK(unread.identity(comm) == identity);
    CHECK(DataCheck({nullptr}, comm).identity(comm) == io::DataIdentity());
  });
  for (const auto& identity : all) CHECK(identity == all.front());
}

TEST_CASE("ranks that see different files are told so") {
  const tests::SharedFolder folder;
  const auto a = shard(folder, "a.bin"), b = shard(folder, "b.bin", 0, 2);
  tests::on_first_ranks(std::min(2, test::world_size()), "mpi", [&](distributed::Communicator& comm) {
    if (comm.size() == 1) return;
    const auto error = thrown_by([&] { DataCheck({opened({comm.rank() == 0 ? a : b})}, comm); });
    CHECK(error.status == 3);
    CHECK(error.text == "ranks 0 and 1 read different training data: give all ranks the same files");
  });
}

TEST_CASE("where only some ranks have recorded hashes, all read the blocks; other recorded hashes are refused") {
  const tests::SharedFolder folder;
  const auto a = shard(folder, "a.bin"), bare = shard(folder, "bare.bin"), other = shard(folder, "other.bin");
  if (test::world_rank() == 0) {
    std::filesystem::remove(bare + ".xxh3");
    const auto different = shard_of(folder, "different.bin", 9000000, 2);
    std::filesystem::copy_file(different + ".xxh3", other + ".xxh3", std::filesystem::copy_options::overwrite_existing);
  }
  MPI_Barrier(MPI_COMM_WORLD);
  tests::on_first_ranks(std::min(2, test::world_size()), "mpi", [&](distributed::Communicator& comm) {
    if (comm.size() == 1) return;
    const auto identity = DataCheck({opened({a})}, comm).identity(comm);
    DataCheck check({opened({comm.rank() == 0 ? a : bare})}, comm);
    CHECK(check.identity(comm) == io::DataIdentity{identity.sampled, ""});
    check.finish(comm);
    CHECK(check.identity(comm) == identity);
    const auto error = thrown_by([&] { DataCheck({opened({comm.rank() == 0 ? a : other})}, comm); });
    CHECK(error.status == 3);
    CHECK(error.text == other + ".xxh3: ranks 0 and 1 find different hashes there: give all ranks the same files");
  });
}
