// SPDX-FileCopyrightText: The KoZeRO authors
// SPDX-License-Identifier: Apache-2.0
// test_nccl.cpp: the nccl back end on the tests' mock: waits, failures, and reasons why it is unavailable. Its sums and
// bytes are tested in test_collectives.cpp, its training in tests/train/test_ladder.cpp.
#include <catch2/catch_test_macros.hpp>
#include <catch2/matchers/catch_matchers_string.hpp>

#include <kozero/core/device.hpp>
#include <kozero/core/error.hpp>
#include <kozero/distributed/agreement.hpp>
#include <kozero/distributed/make_communicator.hpp>
#include "src/distributed/back_ends.hpp"

#include <chrono>
#include <cstdlib>
#include <functional>
#include <optional>
#include <thread>

#include <support/nccl_mock.hpp>

#include "error_of.hpp"
#include "rank_groups.hpp"

using namespace kozero;
using namespace kozero::distributed;
using Catch::Matchers::ContainsSubstring;
using Catch::Matchers::StartsWith;
using kozero::test::error_of;
using kozero::test::first_line;
using kozero::test::RankGroup;
using kozero::tests::NcclMock;
using kozero::tests::Variable;

namespace {

std::unique_ptr<Communicator> by_double(const RankGroup& group, double timeout_s = 60.0) {
  const NcclMock nccl;
  MemoryLedger ledger;
  CommunicatorOptions options;
  options.timeout_s = timeout_s;
  options.checks_calls = false;
  return make_communicator("nccl", group.ranks(), ledger, options);
}

/// The reason why `nccl` is refused.
std::string refusal(const RankGroup& group) {
  MemoryLedger ledger;
  const auto error = error_of([&] { make_communicator("nccl", group.ranks(), ledger); });
  if (!error) return "";
  CHECK(error->failure() == Failure::deck);
  CHECK(error->seen_by_all_ranks());
  return error->what();
}

/// A host that did not wait for the collective sees its failure at the next control traffic.
void wait_for_device(Communicator& comm) {
  if (kHostIsDevice) return;
  Device().fence();
  comm.barrier();
}

void nap(int ms) { std::this_thread::sleep_for(std::chrono::milliseconds(ms)); }

}  // namespace

TEST_CASE("the result is there after finish, however late the others are") {
  const RankGroup group(0);
  const auto comm = by_double(group);
  const Partition partition(1000, comm->size());
  const auto mine = static_cast<std::size_t>(partition.size(comm->rank()));
  for (int late = 0; late < comm->size(); ++late) {
    const std::vector<float> shard(mine, static_cast<float>(1 + late));
    std::vector<float> full(1000, 0.0F);
    Pending pending{};
    const auto start = [&] { pending = comm->start_all_gather(shard.data(), full.data(), partition, sizeof(float)); };
    if (comm->rank() != late) start();
    if (partition.size(late) > 0) CHECK(full[static_cast<std::size_t>(partition.begin(late))] == 0.0F);
    MPI_Barrier(MPI_COMM_WORLD);  // the other ranks' starts do not wait
    if (comm->rank() == late) {
      nap(20);
      start();
    }
    comm->wait(pending);
    Device().fence();
    CHECK(full == std::vector<float>(1000, static_cast<float>(1 + late)));
    comm->wait_until_reusable(pending);
    comm->barrier();
  }
}

TEST_CASE("ranks that call different things learn what each called, and nothing goes on") {
  const RankGroup group(0);
  if (group.size() == 1) return;
  const auto comm = by_double(group);
  const int n = comm->size();
  const Partition partition(64 * n * (comm->rank() == 1 ? 2 : 1), n);
  const std::vector<float> full(static_cast<std::size_t>(partition.extent()), 1.0F);
  std::vector<float> shard(128);
  const auto error = error_of([&] {
    comm->reduce_scatter(full.data(), shard.data(), partition);
    wait_for_device(*comm);
  });
  REQUIRE(error.has_value());
  CHECK(error->failure() == Failure::communication);
  CHECK(first_line(*error) ==
        "rank " + std::to_string(comm->rank()) +
            ": NCCL failed in reduce_scatter: invalid usage (rank 0 called ncclReduceScatter of 64 "
            "float32, rank 1 called ncclReduceScatter of 128 float32)");
  CHECK(error_of([&] { comm->start_reduce_scatter(full.data(), shard.data(), partition, {}); })->what() ==
        std::string(error->what()));
  CHECK(error_of([&] { comm->barrier(); })->what() == std::string(error->what()));
  CHECK(error_of([&] { from_all_ranks(*comm, 1.0); })->what() == std::string(error->what()));
  CHECK(error_of([&] { comm->broadcast_control("x"); })->what() == std::string(error->what()));
}

TEST_CASE("a rank that does not come ends the wait, in finish and in control traffic") {
  const RankGroup group(0);
  if (group.size() == 1) return;
  for (const bool finishes : {true, false}) {
    const auto comm = by_double(group, 0.5);
    const Partition partition(100, comm->size());
    std::vector<unsigned char> shard(100), full(100);
    if (comm->rank() != 0) {
      const auto error = error_of([&] {
        const Pending pending = comm->start_all_gather(shard.data(), full.data(), partition, 1);
        if (!finishes) nap(900);
        finishes ? comm->wait(pending) : comm->barrier();
        wait_for_device(*comm);
      });
      REQUIRE(error.has_value());
      CHECK(error->failure() == Failure::communication);
      CHECK(first_line(*error) ==
            "rank " + std::to_string(comm->rank()) +
                " waited 0.5 s in all_gather for another rank: it is lost, or comm.timeout_s is too short");
    }
    MPI_Barrier(MPI_COMM_WORLD);
  }
}

TEST_CASE("a rank that does not come to the start ends the others' wait, and so does its error") {
  const RankGroup group(0);
  if (group.size() == 1) return;
  const std::string me = "rank " + std::to_string(group.rank());
  std::optional<Variable> start;
  if (group.rank() == 1) start.emplace("KOZERO_NCCL_MOCK_START", "absent");
  const auto lonely = error_of([&] { by_double(group, 0.5); });
  REQUIRE(lonely.has_value());
  CHECK(lonely->failure() == Failure::communication);
  if (group.rank() != 1) {
    CHECK(first_line(*lonely) ==
          me + " waited 0.5 s in ncclCommInitRankConfig for another rank: it is lost, or comm.timeout_s is too short; "
               "NCCL_DEBUG=INFO shows how far NCCL came, NCCL_SOCKET_IFNAME chooses its network");
  }
  MPI_Barrier(MPI_COMM_WORLD);

  const Variable failing("KOZERO_NCCL_MOCK_START", "fails");
  const auto failed = error_of([&] { by_double(group); });
  REQUIRE(failed.has_value());
  CHECK(failed->failure() == Failure::communication);
  CHECK(first_line(*failed) == me +
                                   ": NCCL refused ncclCommInitRankConfig: invalid argument or system error (the start "
                                   "fails, as it was told to)");
  MPI_Barrier(MPI_COMM_WORLD);
}

TEST_CASE("what NCCL takes of the GPU for each kind of call is taken at the start, and booked") {
  const RankGroup group(0);
  const NcclMock nccl;
  const std::int64_t before = NcclMock::memory();
  MemoryLedger ledger;
  CommunicatorOptions options;
  options.free_device_bytes = [] { return (std::int64_t{1} << 30) - NcclMock::memory(); };
  {
    const auto comm = make_communicator("nccl", group.ranks(), ledger, options);
    const std::int64_t calls = group.size() == 1 ? 2 : 4;  // one rank has no uneven shards
    REQUIRE(ledger.lines().size() == 1);
    CHECK(ledger.lines()[0].category == Memory::communication);
    CHECK(ledger.lines()[0].label == "NCCL's channels, measured");
    CHECK(ledger.lines()[0].bytes == (3 + calls) << 20);
    const Partition uneven(100, group.size());
    std::vector<float> shard(128), full(100);
    comm->reduce_scatter(full.data(), shard.data(), uneven);
    comm->all_gather(shard.data(), full.data(), uneven, sizeof(float));
    wait_for_device(*comm);
    CHECK(ledger.total() == NcclMock::memory() - before);
  }
  CHECK(NcclMock::memory() == before);  // closed, not aborted
}

TEST_CASE("what is done in time is not given up, however long the communicator lives") {
  const RankGroup group(0);
  const auto comm = by_double(group, 1.0);
  const Partition partition(100, comm->size());
  std::vector<unsigned char> shard(100), full(100);
  std::vector<Pending> started;
  const auto start = [&] { started.push_back(comm->start_all_gather(shard.data(), full.data(), partition, 1)); };
  const int ahead = comm->rank() == 0 ? 1 : 0;  // rank 0 always has one more under way
  if (ahead == 1) start();
  for (int i = 0; i < 6; ++i) {
    if (ahead == 0) nap(250);
    if (i + ahead < 6) start();
    comm->wait(started[static_cast<std::size_t>(i)]);
    Device().fence();  // on a GPU the host would run ahead and wait longer than a second in the barrier
  }
  comm->barrier();
}

TEST_CASE("algorithm and protocol are pinned while NCCL reads them, unless the user chose or bits may change") {
  const RankGroup group(0);
  CHECK(by_double(group)->description() == "nccl (the tests' mock, NCCL_ALGO = Ring, NCCL_PROTO = Simple)");
  CHECK(std::getenv("NCCL_ALGO") == nullptr);
  {
    const Variable chosen("NCCL_ALGO", "Tree");
    CHECK(by_double(group)->description() == "nccl (the tests' mock, NCCL_ALGO = Tree, NCCL_PROTO = Simple)");
    CHECK(std::getenv("NCCL_ALGO") == std::string("Tree"));
  }
  const NcclMock nccl;
  MemoryLedger ledger;
  CommunicatorOptions options;
  options.deterministic = false;
  const auto comm = make_communicator("nccl", group.ranks(), ledger, options);
  CHECK(comm->description() == "nccl (the tests' mock)");
  CHECK(comm->share("registered", 100) != nullptr);
  CHECK(by_double(group)->share("weights", 100) == nullptr);
}

TEST_CASE("without a GPU, or a library that serves, nccl is refused in one line") {
  const RankGroup group(0);
  const std::string remedy = "; or take shm or mpi";
  if (kHostIsDevice) {
    const std::string for_gpus =
        "comm.backend = nccl: this program was built for CPUs, and NCCL moves data between GPUs: start kozero-cuda";
    CHECK(refusal(group) == for_gpus + remedy);
  }
  {
    const Variable library("KOZERO_NCCL_LIBRARY", "/nowhere/libnccl.so.2");
    CHECK(refusal(group) ==
          "comm.backend = nccl: NCCL does not open (/nowhere/libnccl.so.2: cannot open shared object "
          "file: No such file or directory): install NCCL 2.18 or newer or name its file in "
          "KOZERO_NCCL_LIBRARY" +
              remedy);
  }
  {
    const Variable library("KOZERO_NCCL_LIBRARY", "libm.so.6");
    CHECK(refusal(group) ==
          "comm.backend = nccl: libm.so.6 has no ncclGetVersion: NCCL 2.18 or newer is needed" + remedy);
  }
  const NcclMock library;
  const Variable version("KOZERO_NCCL_MOCK_VERSION", "21705");
  CHECK_THAT(refusal(group), StartsWith("comm.backend = nccl: "));
  CHECK_THAT(refusal(group), ContainsSubstring("libkozero_nccl_mock.so is NCCL 2.17.5: NCCL 2.18 or newer is needed"));
}

TEST_CASE("where one rank alone lacks the library, all say which") {
  const RankGroup group(0);
  if (group.size() == 1) return;
  const NcclMock others;
  std::optional<Variable> mine;
  if (group.rank() == 1) mine.emplace("KOZERO_NCCL_LIBRARY", "libm.so.6");
  CHECK_THAT(refusal(group), StartsWith("comm.backend = nccl: on rank 1 libm.so.6 has no ncclGetVersion"));
}

TEST_CASE("two ranks on one GPU are named; the same address on another node is another GPU") {
  CHECK(shared_gpu({}).empty());
  CHECK(shared_gpu({{"a", "0000:3b:00.0"}, {"b", "0000:3b:00.0"}, {"a", "0000:af:00.0"}}).empty());
  CHECK(shared_gpu({{"a", "0000:3b:00.0"}, {"b", "0000:3b:00.0"}, {"b", "0000:3b:00.0"}}) ==
        "ranks 1 and 2 are on the same GPU (0000:3b:00.0 of node b), which NCCL refuses: start one rank per GPU");
}
