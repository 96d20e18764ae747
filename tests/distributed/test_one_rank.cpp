// SPDX-FileCopyrightText: The KoZeRO authors
// SPDX-License-Identifier: Apache-2.0
// test_one_rank.cpp: communicators without MPI: names, the self and the planned communicator.
#include <catch2/catch_test_macros.hpp>
#include <catch2/matchers/catch_matchers_exception.hpp>

#include <kozero/core/error.hpp>
#include <kozero/distributed/agreement.hpp>
#include <kozero/distributed/communicator.hpp>
#include <kozero/distributed/make_communicator.hpp>

using namespace kozero;
using namespace kozero::distributed;
using Catch::Matchers::Message;

TEST_CASE("accepted back ends", "[names]") {
  for (const auto& name : backend_names()) CHECK_NOTHROW(check_backend_name(name));
  CHECK(backend_names() == std::vector<std::string>{"auto", "self", "mpi", "shm", "nccl", "ring"});
}

TEST_CASE("other back ends are refused with the accepted ones", "[names]") {
  CHECK_THROWS_MATCHES(check_backend_name("gossip"), Error,
                       Message("comm.backend = gossip: accepted are auto, self, mpi, shm, nccl, ring"));
  CHECK_THROWS_MATCHES(check_backend_name("slef"), Error,
                       Message("comm.backend = slef: accepted are auto, self, mpi, shm, nccl, ring; nearest is self"));
}

TEST_CASE("self copies, and in place does nothing", "[self]") {
  const auto comm = make_self_communicator();
  CHECK(comm->rank() == 0);
  CHECK(comm->size() == 1);
  const Partition partition(5, 1);
  MemoryLedger ledger;
  const auto full = ledger.take<float>(Memory::workspace, "full", 5);
  const auto shard = ledger.take<float>(Memory::workspace, "shard", 5);
  Kokkos::deep_copy(full, 3.0F);
  comm->reduce_scatter(full.data(), shard.data(), partition);
  Kokkos::deep_copy(full, 0.0F);
  comm->all_gather(shard.data(), full.data(), partition, sizeof(float));
  comm->reduce_scatter(full.data(), full.data(), partition);
  const auto result = Kokkos::create_mirror_view_and_copy(Kokkos::HostSpace(), full);
  for (std::size_t i = 0; i < 5; ++i) CHECK(result(i) == 3.0F);
  CHECK(from_all_ranks(*comm, std::vector{1.0, 2.0}) == std::vector{1.0, 2.0});
  CHECK(comm->broadcast_control("x") == "x");
  CHECK_THROWS_AS(comm->reduce_scatter(full.data(), full.data(), Partition(5, 2)), Error);
}

TEST_CASE("a planned communicator has a rank, and no peers", "[planned]") {
  MemoryLedger ledger(MemoryLedger::Mode::plan);
  const auto comm = make_planned_communicator("auto", 2, 7, ledger);
  CHECK(comm->rank() == 2);
  CHECK(comm->size() == 7);
  CHECK(comm->name() == "planned");
  const Partition partition(100, 7);
  CHECK_THROWS_MATCHES(comm->reduce_scatter(nullptr, nullptr, partition), Error,
                       Message("reduce_scatter was called while planning, where no rank has peers"));
  CHECK_THROWS_AS(comm->all_gather(nullptr, nullptr, partition, 4), Error);
  CHECK_THROWS_AS(comm->barrier(), Error);
  CHECK_THROWS_AS(comm->gather_control({}), Error);
  CHECK_THROWS_AS(comm->broadcast_control(""), Error);
  CHECK_THROWS_AS(make_planned_communicator("self", 0, 2, ledger), Error);
}

TEST_CASE("auto is planned as NCCL on GPUs, whatever this node has, and as shared memory on hosts", "[planned]") {
  CHECK(assumed_backend(16, true) == "nccl");
  CHECK(assumed_backend(16, false) == "shm");
  for (const bool on_gpus : {false, true}) CHECK(assumed_backend(1, on_gpus) == "self");
  for (const char* name : {"self", "mpi", "shm", "nccl", "ring"}) {
    MemoryLedger as_auto(MemoryLedger::Mode::plan);
    MemoryLedger as_named(MemoryLedger::Mode::plan);
    const int size = std::string(name) == "self" ? 1 : 16;
    make_planned_communicator(name, 0, size, as_named);
    make_planned_communicator("auto", 0, size, as_auto);
    CHECK((as_auto.total() == as_named.total()) == (assumed_backend(size) == name));
  }
}
