// SPDX-FileCopyrightText: The KoZeRO authors
// SPDX-License-Identifier: Apache-2.0
// test_make_communicator.cpp: the back end of each name, rejected names and requirements, and booked memory.
#include <algorithm>
#include <catch2/catch_test_macros.hpp>
#include <catch2/matchers/catch_matchers_exception.hpp>

#include <kozero/core/error.hpp>
#include <kozero/distributed/make_communicator.hpp>

#include <support/nccl_mock.hpp>

#include "rank_groups.hpp"

using namespace kozero;
using namespace kozero::distributed;
using Catch::Matchers::Message;
using kozero::test::for_each_group_size;
using kozero::test::RankGroup;

TEST_CASE("auto takes self for one rank and shm on one node", "[make]") {
  for_each_group_size([](const RankGroup& group) {
    MemoryLedger ledger;
    CHECK(make_communicator("auto", group.ranks(), ledger)->name() == (group.size() == 1 ? "self" : "shm"));
  });
}

TEST_CASE("without space in shared memory auto says so once and takes mpi, shm is refused", "[make]") {
  const RankGroup group(0);
  if (group.size() == 1) return;
  MemoryLedger ledger;
  std::vector<std::string> notices;
  CommunicatorOptions options;
  options.chunk_bytes = std::int64_t{8} << 20;
  options.shm_free_bytes = [] { return std::int64_t{5} << 20; };
  options.notice = [&](const std::string& line) { notices.push_back(line); };

  const std::string needed = std::to_string(16 * group.size() + 1) + " MiB";
  const std::string unavailable_reason = "shared memory needs " + needed + " and /dev/shm has 5 MiB left";
  CHECK(make_communicator("auto", group.ranks(), ledger, options)->name() == "mpi");
  if (group.rank() == 0) {
    CHECK(notices == std::vector<std::string>{"comm.backend = auto takes mpi: " + unavailable_reason});
  } else {
    CHECK(notices.empty());
  }
  CHECK_THROWS_MATCHES(make_communicator("shm", group.ranks(), ledger, options), Error,
                       Message("comm.backend = shm: " + unavailable_reason + "; take mpi, or auto"));
  CHECK(notices.size() <= 1);
}

TEST_CASE("the space is enough where it is just enough", "[make]") {
  const RankGroup group(0);
  MemoryLedger ledger;
  CommunicatorOptions options;
  options.chunk_bytes = 8192;
  std::int64_t free_bytes = group.size() * (4096 + 2 * 8192);
  options.shm_free_bytes = [&] { return free_bytes; };
  CHECK(make_communicator("shm", group.ranks(), ledger, options)->name() == "shm");
  --free_bytes;
  CHECK_THROWS_AS(make_communicator("shm", group.ranks(), ledger, options), Error);
}

TEST_CASE("arrays that find no room in shared memory are copied through windows, and rank 0 says so once", "[make]") {
  const RankGroup group(0);
  MemoryLedger ledger;
  CommunicatorOptions options;
  options.chunk_bytes = 8192;
  std::int64_t free_bytes = std::int64_t{1} << 30;
  options.shm_free_bytes = [&] { return free_bytes; };
  std::vector<std::string> notices;
  options.notice = [&](const std::string& line) { notices.push_back(line); };
  const auto comm = make_communicator("shm", group.ranks(), ledger, options);
  CHECK(comm->description() == "shm (arrays copied through windows)");
  free_bytes = group.size() * 12288;
  CHECK(comm->share("weights", 12288) != nullptr);
  CHECK(comm->description() == "shm (1 MiB of arrays per rank shared)");
  free_bytes -= 1;
  CHECK(comm->share("gradients", 12288) == nullptr);
  CHECK(comm->share("more", 12288) == nullptr);
  CHECK(comm->description() == "shm (1 MiB of arrays per rank shared, others copied through windows)");
  const std::string expected =
      "comm.backend = shm copies gradients through windows, which is slower: sharing it needs 1 MiB of /dev/shm, which "
      "has "
      "1 MiB left";
  CHECK(notices == (group.rank() == 0 ? std::vector<std::string>{expected} : std::vector<std::string>{}));
}

TEST_CASE("self is refused to several ranks", "[make]") {
  const RankGroup group(0);
  MemoryLedger ledger;
  if (group.size() == 1) {
    CHECK(make_communicator("self", group.ranks(), ledger)->name() == "self");
  } else {
    CHECK_THROWS_MATCHES(
        make_communicator("self", group.ranks(), ledger), Error,
        Message("comm.backend = self: it serves one rank, not " + std::to_string(group.size()) + "; take auto"));
  }
}

TEST_CASE("a plan books what the run books", "[make]") {
  const RankGroup group(0);
  const tests::NcclMock nccl;
  for (const char* name : {"auto", "mpi", "shm", "nccl", "ring"}) {
    for (const std::int64_t shm_free_bytes : {std::int64_t{0}, std::int64_t{1} << 30}) {  // auto chooses mpi, then shm
      if (std::string(name) == "shm" && shm_free_bytes == 0) continue;
      CAPTURE(name, group.size(), shm_free_bytes);
      MemoryLedger real;
      MemoryLedger plan(MemoryLedger::Mode::plan);
      CommunicatorOptions options;
      options.shm_free_bytes = [=] { return shm_free_bytes; };
      options.free_device_bytes = [] { return std::int64_t{0}; };  // NCCL's use of GPU memory is known only afterwards
      options.notice = [](const std::string&) {};
      const std::string backend = backend_of(name, group.ranks(), options);
      const auto comm = make_communicator(name, group.ranks(), real, options);
      const auto planned = make_planned_communicator(backend, group.rank(), group.size(), plan);
      CHECK(comm->name() == backend);
      CHECK(plan.total() == real.total());
      CHECK(plan.bytes(Memory::communication) == real.bytes(Memory::communication));
      CHECK(real.total() <= (std::int64_t{16} << 20) + 4096);
    }
  }
}

TEST_CASE("the back ends that verify compares are those whose communicators add in rank order") {
  using Names = std::vector<std::string>;
  CHECK(back_ends_in_order(1, true) == Names{"self", "mpi", "shm"});
  CHECK(back_ends_in_order(2, true) == Names{"mpi", "shm"});
  CHECK(back_ends_in_order(2, false) == Names{"mpi"});
  const RankGroup group(0);
  const tests::NcclMock nccl;
  const Names in_order = back_ends_in_order(group.size(), true);
  for (const std::string name : {"self", "mpi", "shm", "nccl", "ring"}) {
    if (name == "self" && group.size() > 1) continue;
    CAPTURE(name);
    MemoryLedger ledger;
    const auto comm = make_communicator(name, group.ranks(), ledger);
    CHECK(comm->adds_in_order() == (std::ranges::find(in_order, name) != in_order.end()));
  }
}
