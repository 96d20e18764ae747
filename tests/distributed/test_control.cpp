// SPDX-FileCopyrightText: The KoZeRO authors
// SPDX-License-Identifier: Apache-2.0
// test_control.cpp: control traffic, agreement on errors, and waits that time out.
#include <catch2/catch_test_macros.hpp>
#include <catch2/matchers/catch_matchers_string.hpp>

#include <kozero/core/error.hpp>
#include <kozero/distributed/agreement.hpp>
#include <kozero/distributed/communicator.hpp>
#include <kozero/distributed/communicator_decorators.hpp>
#include <kozero/distributed/environment.hpp>
#include <kozero/distributed/make_communicator.hpp>

#include <mpi.h>

#include <algorithm>
#include <chrono>
#include <functional>
#include <optional>
#include <thread>

#include <support/nccl_mock.hpp>

#include "error_of.hpp"
#include "rank_groups.hpp"

using namespace kozero;
using namespace kozero::distributed;
using Catch::Matchers::ContainsSubstring;
using kozero::test::error_of;
using kozero::test::RankGroup;

namespace {

CommunicatorOptions small_buffers() {
  CommunicatorOptions options;
  options.chunk_bytes = 4096;
  options.checks_calls = false;  // the check's own waits come before those tested here
  return options;
}

// Gathered values come in rank order.
void check_gather(Communicator& comm) {
  const double r = comm.rank();
  std::vector<double> expected;
  for (int i = 0; i < comm.size(); ++i) expected.insert(expected.end(), {i + 0.5, -1.0 * i});
  CHECK(from_all_ranks(comm, std::vector{r + 0.5, -r}) == expected);
  CHECK(from_all_ranks(comm, std::vector<double>()).empty());
  comm.barrier();
}

// Rank 0's bytes reach every rank.
void check_broadcast(Communicator& comm) {
  std::string bytes(5000, 'x');
  bytes[7] = '\0';
  CHECK(comm.broadcast_control(comm.rank() == 0 ? bytes : "ignored") == bytes);
  CHECK(comm.broadcast_control(comm.rank() == 0 ? "" : "ignored").empty());
}

// Ranks agree on the lowest rank's message.
void check_agree(Communicator& comm) {
  CHECK_NOTHROW(agree(comm, 0, ""));
  const auto wordless = error_of([&] { agree(comm, comm.rank() == comm.size() - 1 ? 3 : 0, ""); });
  REQUIRE(wordless.has_value());
  CHECK(wordless->what() == "rank " + std::to_string(comm.size() - 1) + " failed and said nothing");
  CHECK(wordless->exit_status() == 3);
  const int lowest = comm.size() / 2;
  const std::string own =
      comm.rank() < lowest ? "" : std::string("rank ") + std::to_string(comm.rank()) + ": disk \xC3\xA9 full";
  const auto error = error_of([&] { agree(comm, own.empty() ? 0 : comm.rank() == lowest ? 4 : 3, own); });
  REQUIRE(error.has_value());
  CHECK(error->what() == "rank " + std::to_string(lowest) + ": disk \xC3\xA9 full");
  CHECK(error->exit_status() == 4);
  CHECK(error->seen_by_all_ranks());
  comm.barrier();
}

}  // namespace

TEST_CASE("ranks exchange control values and agree on errors", "[control]") {
  const RankGroup group(0);
  MemoryLedger ledger;
  const tests::NcclMock nccl;
  for (const char* name : {"mpi", "shm", "nccl", "ring", "auto"}) {
    CAPTURE(name, group.size());
    const auto comm = make_communicator(name, group.ranks(), ledger, small_buffers());
    check_gather(*comm);
    check_broadcast(*comm);
    check_agree(*comm);
  }
}

TEST_CASE("a thread beside the training exchanges control values of its own, and nothing else", "[control]") {
  const RankGroup group(0);
  MemoryLedger ledger;
  const auto training = make_communicator("auto", group.ranks(), ledger, small_buffers());
  const auto control = make_control_communicator(group.ranks(), 60.0);
  check_agree(*control);
  std::vector<std::string> heard;
  std::thread beside([&] {
    for (int i = 0; i < 50; ++i) heard.push_back(control->broadcast_control(std::to_string(i)));
  });
  bool in_order = true;
  for (int i = 0; i < 200; ++i)
    in_order = in_order && training->broadcast_control(std::to_string(-i)) == std::to_string(-i);
  beside.join();
  CHECK(in_order);
  for (int i = 0; i < 50; ++i) CHECK(heard[static_cast<std::size_t>(i)] == std::to_string(i));
  if (group.size() == 1) return;
  const Partition partition(64 * group.size(), group.size());
  CHECK(error_of([&] { control->all_gather(nullptr, nullptr, partition, 4); })->failure() == Failure::internal);
}

TEST_CASE("a rank that does not come is named", "[control]") {
  const RankGroup group(0);
  if (group.size() == 1) return;
  for (const auto& [name, shares] :
       {std::pair{"mpi", false}, std::pair{"shm", false}, std::pair{"shm", true}, std::pair{"ring", false}}) {
    CAPTURE(name, shares);
    MemoryLedger ledger;
    CommunicatorOptions options = small_buffers();
    options.timeout_s = 0.2;
    const auto comm = make_communicator(name, group.ranks(), ledger, options);
    const int missing = group.size() - 1;
    const Partition partition(64 * group.size(), group.size());
    const auto full = shares ? ledger.take<float>(Memory::workspace, "full", partition.extent(), *comm)
                             : ledger.take<float>(Memory::workspace, "full", partition.extent());
    std::vector<float> shard(64);
    if (group.rank() != missing) {
      const auto error = error_of([&] { comm->reduce_scatter(full.data(), shard.data(), partition); });
      REQUIRE(error.has_value());
      CHECK(error->failure() == Failure::communication);
      CHECK_FALSE(error->seen_by_all_ranks());
      // On the ring each rank waits for the one before, and rank 0 for the missing rank.
      const int awaited = std::string(name) == "ring" ? (group.rank() + missing) % group.size() : missing;
      CHECK_THAT(error->what(),
                 ContainsSubstring("rank " + std::to_string(group.rank()) +
                                   " waited 0.2 s in reduce_scatter for rank " + std::to_string(awaited)));
    } else {
      const auto error = error_of([&] { comm->barrier(); });  // no other rank calls this
      REQUIRE(error.has_value());
      CHECK_THAT(error->what(), ContainsSubstring("waited 0.2 s in barrier for another rank"));
    }
    MPI_Barrier(MPI_COMM_WORLD);
  }
}

TEST_CASE("what a late rank sends lands in no memory of something else", "[control]") {
  const RankGroup group(0);
  if (group.size() == 1) return;
  MemoryLedger ledger;
  CommunicatorOptions options = small_buffers();
  options.timeout_s = 0.2;
  const auto comm = make_communicator("mpi", group.ranks(), ledger, options);
  constexpr std::size_t kCount = 3000;
  const bool late = group.rank() == group.size() - 1;
  std::vector<std::vector<double>> later;
  if (!late) {
    const auto error = error_of([&] { from_all_ranks(*comm, std::vector<double>(kCount, 7.0)); });
    REQUIRE(error.has_value());
    // Freed memory is given out again.
    for (const int ranks : {1, group.size()}) later.emplace_back(kCount * static_cast<std::size_t>(ranks), 1.0);
    const auto again = error_of([&] { comm->barrier(); });
    REQUIRE(again.has_value());
    CHECK(again->what() == std::string(error->what()));  // a communicator that lost a rank always fails
  }
  MPI_Barrier(MPI_COMM_WORLD);
  if (late) error_of([&] { from_all_ranks(*comm, std::vector<double>(kCount, 7.0)); });
  for (int i = 0; i < 10; ++i) MPI_Barrier(MPI_COMM_WORLD);  // gives messages time to arrive
  for (const auto& values : later) {
    CHECK(std::all_of(values.begin(), values.end(), [](double value) { return value == 1.0; }));
  }
}

TEST_CASE("an agreement waits for a rank that works, and not for ranks that wait elsewhere", "[control][environment]") {
  const Environment environment(nullptr, nullptr, 2.0);
  if (environment.size() == 1) return;
  const auto control = make_control_communicator(environment.world(), 2.0, {.checks_calls = false});
  const auto other = make_control_communicator(environment.world(), 2.0, {.checks_calls = false});
  const bool last = environment.rank() == environment.size() - 1;
  if (last) std::this_thread::sleep_for(std::chrono::seconds(6));
  CHECK(from_all_ranks(*control, 1).size() == static_cast<std::size_t>(environment.size()));
  const auto error = error_of([&] { last ? other->barrier() : static_cast<void>(from_all_ranks(*control, 2)); });
  REQUIRE(error.has_value());
  CHECK(error->failure() == Failure::communication);
  CHECK_THAT(
      error->what(),
      ContainsSubstring(last ? "s in barrier for another rank, while every rank waits (for comm.timeout_s)"
                             : "s in gather_control for another rank, while every rank waits (for comm.timeout_s)"));
  CHECK_THAT(error->what(), ContainsSubstring("rank " + std::to_string(environment.rank()) + " on ") &&
                                ContainsSubstring("newest collectives here: ") &&
                                ContainsSubstring("waiting in gather_control 2 of control") &&
                                ContainsSubstring("waiting in barrier 1 of control"));
  MPI_Barrier(MPI_COMM_WORLD);
}

TEST_CASE("ranks that call different collectives are told so before one of them waits", "[control]") {
  const RankGroup group(0);
  if (group.size() == 1) return;
  MemoryLedger ledger;
  for (const char* name : {"mpi", "shm"}) {
    CheckedCommunicator comm(make_communicator(name, group.ranks(), ledger, small_buffers()),
                             make_control_communicator(group.ranks(), 60.0));
    check_gather(comm);
    check_broadcast(comm);
    const bool last = group.rank() == group.size() - 1;
    const std::string who = std::to_string(group.size() - 1);
    const Partition partition(64 * group.size(), group.size());
    std::vector<float> full(static_cast<std::size_t>(partition.extent()));
    std::vector<float> shard(64);
    const auto begins = std::string("the ranks call different collectives of ") + name + ": ";
    const auto call =
        error_of([&] { last ? comm.barrier() : comm.reduce_scatter(full.data(), shard.data(), partition); });
    REQUIRE(call.has_value());
    CHECK(call->what() == begins + "rank 0 reduce_scatter of " + std::to_string(partition.extent()) +
                              " elements of 4 bytes, rank " + who + " barrier");
    CHECK(call->seen_by_all_ranks());
    const auto fold = [&](Fold mine) {
      const auto error = error_of([&] { comm.reduce_scatter(full.data(), shard.data(), partition, mine); });
      return error ? std::string(error->what()) : "";
    };
    const std::string size = " of " + std::to_string(partition.extent()) + " elements of 4 bytes";
    CHECK(fold({.ranks = last ? 1 : 0}) ==
          begins + "rank 0 reduce_scatter" + size + ", rank " + who + " reduce_scatter over 1 rank" + size);
    CHECK(fold({.ranks = 1, .onto = last}) == begins + "rank 0 reduce_scatter over 1 rank" + size + ", rank " + who +
                                                  " reduce_scatter onto a shard over 1 rank" + size);
    CHECK(fold({.ranks = last ? group.size() : 0}).empty());
    const auto count = error_of([&] { from_all_ranks(comm, std::vector<double>(last ? 2 : 1)); });
    REQUIRE(count.has_value());
    CHECK(count->what() == begins + "rank 0 gather_control of 8 bytes, rank " + who + " gather_control of 16 bytes");
    const auto type = error_of([&] { comm.all_gather(shard.data(), full.data(), partition, last ? 2 : 4); });
    REQUIRE(type.has_value());
    CHECK_THAT(type->what(), ContainsSubstring("elements of 4 bytes, rank " + who + " all_gather of") &&
                                 ContainsSubstring("elements of 2 bytes"));
  }
}

TEST_CASE("the environment knows its ranks and leaves a running MPI up", "[environment]") {
  {
    const Environment environment(nullptr, nullptr);
    CHECK(environment.rank() == kozero::test::world_rank());
    CHECK(environment.size() == kozero::test::world_size());
    CHECK(environment.local_ranks() == environment.size());  // tests run on one node
    CHECK(environment.local_rank() == environment.rank());
    CHECK(environment.thread_multiple());
    MemoryLedger ledger;
    CHECK(make_communicator("auto", environment.world(), ledger)->size() == environment.size());
  }
  int finalized = 1;
  MPI_Finalized(&finalized);
  CHECK(finalized == 0);
}
