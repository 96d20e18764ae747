// SPDX-FileCopyrightText: The KoZeRO authors
// SPDX-License-Identifier: Apache-2.0
// test_collectives.cpp: reduce_scatter and all_gather of every back end against a loop over the ranks, in bits.
#include <catch2/catch_test_macros.hpp>

#include <kozero/core/error.hpp>
#include <kozero/distributed/agreement.hpp>
#include <kozero/distributed/communicator_decorators.hpp>
#include <kozero/distributed/make_communicator.hpp>

#include <chrono>
#include <cmath>
#include <numeric>
#include <thread>

#include <support/nccl_mock.hpp>

#include "rank_groups.hpp"
#include "rank_values.hpp"

using namespace kozero;
using namespace kozero::distributed;
using kozero::test::addend_of;
using kozero::test::RankGroup;
using kozero::test::same_bits;
using kozero::test::sum_of_ranks;
using kozero::test::value_of;

namespace {

// Small buffers and messages, so that small arrays need several of them.
CommunicatorOptions small_buffers() {
  CommunicatorOptions options;
  options.timeout_s = 60.0;
  options.chunk_bytes = 3000;
  options.message_bytes = 500;
  return options;
}

struct Case {
  std::string what;
  std::unique_ptr<CountedCommunicator> comm;
};

// Every back end, made once for all checks: with more ranks than cores MPI makes a communicator slowly.
std::vector<Case> all_back_ends(const RankGroup& group, MemoryLedger& ledger) {
  std::vector<Case> cases;
  const auto add = [&](const std::string& what, std::unique_ptr<Communicator> comm) {
    cases.push_back({what, std::make_unique<CountedCommunicator>(std::move(comm))});
  };
  const auto make = [&](const char* name, const CommunicatorOptions& options = small_buffers()) {
    return make_communicator(name, group.ranks(), ledger, options);
  };
  add("mpi", make("mpi"));
  add("shm", make("shm"));
  add("mpi, default buffers", make("mpi", CommunicatorOptions{}));
  add("shm, default buffers", make("shm", CommunicatorOptions{}));
  CommunicatorOptions exact = small_buffers();
  exact.exact = true;
  exact.exact_bytes = 3000;
  if (group.size() <= 4) {
    const kozero::tests::NcclMock nccl;
    CommunicatorOptions registering = small_buffers();
    registering.deterministic = false;
    add("nccl", make("nccl"));
    add("nccl, registered arrays", make("nccl", registering));
    add("nccl, comm.exact", make("nccl", exact));
  }
  if (group.size() > 1) {
    CommunicatorOptions nodes = small_buffers();
    nodes.ranks_per_node = 1;
    add("mpi, a node a rank", make("mpi", nodes));
  }
  add("ring", make("ring"));
  add("ring, comm.exact", make("ring", exact));
  add("ring, default buffers", make("ring", CommunicatorOptions{}));
  CommunicatorOptions throttled = small_buffers();
  throttled.throttle_gbit = 10.0;
  throttled.latency_us = 20.0;
  add("mpi, throttled", make("mpi", throttled));
  add("staged", std::make_unique<StagedCommunicator>(make("mpi"), ledger, 2000));
  if (group.size() == 1) add("self", make("self"));
  return cases;
}

/// Owners of shards: all ranks, only the last rank, or half of the ranks.
std::vector<int> owners_among(int n) {
  std::vector<int> all = {n};
  if (n > 1) all.push_back(1);
  if (n > 3) all.push_back(n / 2);
  return all;
}

std::vector<std::int64_t> extents_for(int n) {
  return {0, 1, 63, 65, 130, 64 * n, 64 * n + 1, 1000, 4097, 64 * 31 * n - 5};
}

/// Element i of the sum of shard `owner`. Without comm.exact the ring's sums begin after the owner and end with it.
float expected_sum(const Communicator& comm, int owner, std::int64_t i) {
  const bool around = comm.name() == "ring" && !comm.adds_in_order();
  return sum_of_ranks(comm.size(), i, around ? (owner + 1) % comm.size() : 0);
}

int owner_of(const Partition& partition, std::int64_t i) {
  int owner = 0;
  while (i >= partition.end(owner)) ++owner;
  return owner;
}

std::int64_t wrong_sums(const Communicator& comm, const Partition& partition, const float* shard) {
  std::int64_t wrong = 0;
  for (std::int64_t i = 0; i < partition.size(comm.rank()); ++i) {
    wrong += !same_bits(shard[i], expected_sum(comm, comm.rank(), partition.begin(comm.rank()) + i));
  }
  return wrong;
}

unsigned char byte_at(std::int64_t i) { return static_cast<unsigned char>((i * 131 + i / 251) & 0xFF); }

std::int64_t wrong_bytes(const std::vector<unsigned char>& full) {
  std::int64_t wrong = 0;
  for (std::size_t i = 0; i < full.size(); ++i) wrong += full[i] != byte_at(static_cast<std::int64_t>(i));
  return wrong;
}

void check_reduce_scatter(Communicator& comm, const Partition& partition) {
  const std::int64_t extent = partition.extent();
  const auto own = addend_of(comm.rank(), extent);
  const auto size = static_cast<std::size_t>(partition.size(comm.rank()));

  std::vector<float> apart(size + 1, -1.0F);
  comm.reduce_scatter(own.data(), apart.data(), partition);
  CHECK(wrong_sums(comm, partition, apart.data()) == 0);
  CHECK(apart.back() == -1.0F);

  std::vector<float> full = own;
  float* in_place = full.data() + partition.begin(comm.rank());
  comm.reduce_scatter(full.data(), in_place, partition);
  CHECK(wrong_sums(comm, partition, in_place) == 0);
  std::copy_n(own.data() + partition.begin(comm.rank()), size, in_place);
  CHECK(full == own);  // only the shard was written
}

/// Adds the addends of only the first ranks: to the shard's contents, and without them in place, where the idle ranks'
/// own shards are overwritten, not added.
void check_folds(Communicator& comm, const Partition& partition) {
  const std::int64_t extent = partition.extent();
  const auto own = addend_of(comm.rank(), extent);
  for (int ranks = 1; ranks <= comm.size(); ++ranks) {
    for (const bool onto : {false, true}) {
      std::vector<float> shard(static_cast<std::size_t>(partition.size(comm.rank())) + 1, -1.0F);
      for (std::size_t i = 0; i < shard.size(); ++i) shard[i] = value_of(41, static_cast<std::int64_t>(i));
      const float last = shard.back();
      comm.reduce_scatter(own.data(), shard.data(), partition, {.ranks = ranks, .onto = onto});
      std::int64_t wrong = 0;
      for (std::int64_t i = 0; i < partition.size(comm.rank()); ++i) {
        const std::int64_t at = partition.begin(comm.rank()) + i;
        float sum = onto ? value_of(41, i) + value_of(0, at) : value_of(0, at);
        for (int r = 1; r < ranks; ++r) sum += value_of(r, at);
        wrong += !same_bits(shard[static_cast<std::size_t>(i)], sum);
      }
      CHECK(wrong == 0);
      CHECK(shard.back() == last);
    }
    std::vector<float> full = own;
    const std::int64_t first = partition.begin(comm.rank());
    comm.reduce_scatter(full.data(), full.data() + first, partition, {.ranks = ranks});
    std::int64_t wrong = 0;
    for (std::int64_t i = 0; i < extent; ++i) {
      const bool is_mine = i >= first && i < first + partition.size(comm.rank());
      const auto held = full[static_cast<std::size_t>(i)];
      wrong += !same_bits(held, is_mine ? sum_of_ranks(ranks, i) : own[static_cast<std::size_t>(i)]);
    }
    CHECK(wrong == 0);
  }
}

void check_all_gather(Communicator& comm, const Partition& partition, std::int64_t element) {
  const std::int64_t extent = partition.extent();
  const std::int64_t first = partition.begin(comm.rank()) * element;
  std::vector<unsigned char> shard(static_cast<std::size_t>(partition.size(comm.rank()) * element));
  for (std::size_t i = 0; i < shard.size(); ++i) shard[i] = byte_at(first + static_cast<std::int64_t>(i));

  std::vector<unsigned char> full(static_cast<std::size_t>(extent * element), 0);
  comm.all_gather(shard.data(), full.data(), partition, static_cast<std::size_t>(element));
  CHECK(wrong_bytes(full) == 0);

  std::vector<unsigned char> in_place(full.size(), 0);
  std::copy(shard.begin(), shard.end(), in_place.begin() + first);
  comm.all_gather(in_place.data() + first, in_place.data(), partition, static_cast<std::size_t>(element));
  CHECK(wrong_bytes(in_place) == 0);
}

// Repeated reductions and gathers, without a barrier between them.
void check_rounds(Communicator& comm) {
  const Partition partition(1000, comm.size());
  for (int round = 1; round <= 20; ++round) {
    const auto factor = static_cast<float>(1 << round % 8);  // exact, even if the product is fused with the addition
    auto full = addend_of(comm.rank(), 1000);
    for (auto& x : full) x *= factor;
    float* shard = full.data() + partition.begin(comm.rank());
    comm.reduce_scatter(full.data(), shard, partition);
    comm.all_gather(shard, full.data(), partition, sizeof(float));
    CHECK(same_bits(full.back(), expected_sum(comm, owner_of(partition, 999), 999) * factor));
  }
}

std::vector<float> to_host(const Vector<float>& device) {
  std::vector<float> values(device.extent(0));
  Kokkos::deep_copy(HostVector<float>(values.data(), values.size()), device);
  return values;
}

void fill(const Vector<float>& device, const std::vector<float>& values) {
  Kokkos::deep_copy(device, HostVector<const float>(values.data(), values.size()));
}

// Arrays from share(), if the back end has them: each round writes them again as soon as they are reusable.
void check_shared_arrays(Communicator& comm, const Vector<float>& shared, const Partition& partition) {
  const std::int64_t extent = partition.extent();
  const std::int64_t mine = partition.size(comm.rank());
  const auto full = kozero::slice(shared, 64, extent);
  const auto shard = kozero::slice(shared, 64 + extent + 7 * comm.rank(), mine);
  const auto in_place = kozero::slice(full, partition.begin(comm.rank()), mine);
  MemoryLedger ledger;
  const auto all = ledger.take<float>(Memory::workspace, "all", extent);
  std::int64_t wrong = 0;
  for (int round = 0; round < 10; ++round) {
    fill(full, addend_of(comm.rank(), extent));
    const Vector<float> target = round % 2 == 0 ? shard : in_place;
    comm.reduce_scatter(full.data(), target.data(), partition);
    Kokkos::deep_copy(round % 2 == 0 ? in_place : shard, -1.0F);
    wrong += wrong_sums(comm, partition, to_host(target).data());
    comm.all_gather(target.data(), all.data(), partition, sizeof(float));
    Kokkos::deep_copy(target, -2.0F);
    const auto gathered = to_host(all);
    for (std::int64_t i = 0; i < extent; ++i) {
      wrong += !same_bits(gathered[static_cast<std::size_t>(i)], expected_sum(comm, owner_of(partition, i), i));
    }
  }
  CHECK(wrong == 0);
}

// Several collectives under way at once, of shared arrays and others; they are not awaited in the order of their
// starts.
void check_started_together(Communicator& comm, const Vector<float>& shared) {
  const Partition partition(1000, comm.size());
  const auto mine = static_cast<std::size_t>(partition.size(comm.rank()));
  fill(slice(shared, 0, 1000), addend_of(comm.rank(), 1000));
  const auto own = addend_of(comm.rank(), 1000);
  std::vector<float> sums(mine), same_sums(mine), all(1000);
  const std::vector<float> ranks(mine, static_cast<float>(comm.rank()));
  std::int64_t wrong = 0;
  for (int round = 0; round < 20; ++round) {
    const Pending first = comm.start_reduce_scatter(shared.data(), sums.data(), partition, {});
    const Pending second = comm.start_all_gather(ranks.data(), all.data(), partition, sizeof(float));
    const Pending third = comm.start_reduce_scatter(own.data(), same_sums.data(), partition, {});
    comm.wait(second);
    for (const int r : {0, comm.size() - 1}) {
      if (partition.size(r) > 0) wrong += all[static_cast<std::size_t>(partition.begin(r))] != static_cast<float>(r);
    }
    comm.wait(third);
    comm.wait(first);
    wrong += wrong_sums(comm, partition, sums.data()) + wrong_sums(comm, partition, same_sums.data());
    for (const Pending pending : {first, second, third}) comm.wait_until_reusable(pending);
  }
  CHECK(wrong == 0);
}

void check_counts(CountedCommunicator& comm, const Partition& partition) {
  const std::int64_t extent = partition.extent();
  const std::int64_t own = partition.size(comm.rank());
  std::vector<float> full(static_cast<std::size_t>(extent), 1.0F);
  float* shard = full.data() + partition.begin(comm.rank());
  comm.counts().reset();
  comm.reduce_scatter(full.data(), shard, partition);
  comm.all_gather(shard, full.data(), partition, sizeof(float));
  comm.all_gather(shard, full.data(), partition, 2);
  comm.barrier();

  const auto counts = comm.counts().rows();
  CHECK(std::string(counts[0].collective) == "reduce_scatter");
  CHECK(counts[0].calls == 1);
  CHECK(counts[0].bytes == 4 * (extent - own));
  CHECK(std::string(counts[1].collective) == "all_gather");
  CHECK(counts[1].calls == 2);
  CHECK(counts[1].bytes == (4 + 2) * (comm.size() - 1) * own);
  CHECK(counts[1].seconds >= 0.0);
  const auto of_all_ranks = [&](std::int64_t bytes) {
    const auto all = from_all_ranks(comm, bytes);
    return std::accumulate(all.begin(), all.end(), std::int64_t{0});
  };
  CHECK(of_all_ranks(counts[0].bytes) == 4 * (comm.size() - 1) * extent);
  CHECK(of_all_ranks(counts[1].bytes) == 6 * (comm.size() - 1) * extent);

  comm.counts().reset();
  CHECK(comm.counts().rows()[0].bytes == 0);
  CHECK(std::string(comm.counts().rows()[0].collective) == "reduce_scatter");
}

void check_refusal(Communicator& comm) {
  std::vector<float> full(100);
  const Partition wrong(100, comm.size() + 1);
  CHECK_THROWS_AS(comm.reduce_scatter(full.data(), full.data(), wrong), Error);
  CHECK_THROWS_AS(comm.all_gather(full.data(), full.data(), wrong, 4), Error);
}

}  // namespace

TEST_CASE("the test's values show the order of a sum", "[collectives]") {
  int differ = 0;
  for (std::int64_t i = 0; i < 1000; ++i) {
    const float forward = (value_of(0, i) + value_of(1, i)) + value_of(2, i);
    const float backward = (value_of(2, i) + value_of(1, i)) + value_of(0, i);
    differ += !same_bits(forward, backward);
  }
  CHECK(differ > 100);
}

TEST_CASE("every back end adds in its order, gathers every shard and counts its bytes", "[collectives]") {
  const RankGroup group(0);
  MemoryLedger ledger;
  for (const auto& [what, comm] : all_back_ends(group, ledger)) {
    for (const std::int64_t extent : extents_for(group.size())) {
      for (const int owners : owners_among(group.size())) {
        CAPTURE(what, group.size(), extent, owners);
        const Partition partition(extent, group.size(), owners);
        check_reduce_scatter(*comm, partition);
        if (comm->adds_in_order()) check_folds(*comm, partition);
        for (const std::int64_t element : {1, 2, 4, 8}) check_all_gather(*comm, partition, element);
        check_counts(*comm, partition);
      }
    }
    CAPTURE(what, group.size());
    check_rounds(*comm);
    const auto shared = ledger.take<float>(Memory::workspace, "shared", 64 * 31 * 20, *comm);
    for (const std::int64_t extent : {1, 65, 4097, 64 * 31 * group.size() - 5}) {
      for (const int owners : owners_among(group.size())) {
        CAPTURE(extent, owners);
        check_shared_arrays(*comm, shared, Partition(extent, group.size(), owners));
      }
    }
    check_started_together(*comm, shared);
    check_refusal(*comm);
  }
}

TEST_CASE("sums around the ring differ from those of mpi by roundings, and not from run to run", "[collectives]") {
  const RankGroup group(0);
  MemoryLedger ledger;
  const auto mpi = make_communicator("mpi", group.ranks(), ledger, small_buffers());
  const auto ring = make_communicator("ring", group.ranks(), ledger, small_buffers());
  const Partition partition(64 * 31 * group.size() - 5, group.size());
  const auto own = addend_of(group.rank(), partition.extent());
  const auto mine = static_cast<std::size_t>(partition.size(group.rank()));
  std::vector<float> by_mpi(mine), by_ring(mine), again(mine);
  mpi->reduce_scatter(own.data(), by_mpi.data(), partition);
  ring->reduce_scatter(own.data(), by_ring.data(), partition);
  std::int64_t far = 0;
  std::int64_t differ = 0;
  for (std::size_t i = 0; i < mine; ++i) {
    float magnitudes = 0.0F;
    for (int r = 0; r < group.size(); ++r) {
      magnitudes += std::abs(value_of(r, partition.begin(group.rank()) + static_cast<std::int64_t>(i)));
    }
    // Either order rounds n - 1 times.
    const float bound = 2.0F * static_cast<float>(group.size() - 1) * 0x1p-24F * 1.01F * magnitudes;
    far += !(std::abs(by_ring[i] - by_mpi[i]) <= bound);
    differ += !same_bits(by_ring[i], by_mpi[i]);
  }
  CHECK(far == 0);
  const auto all = from_all_ranks(*ring, differ);
  CHECK((std::accumulate(all.begin(), all.end(), std::int64_t{0}) > 0) == (group.size() > 2));
  for (int round = 0; round < 20; ++round) {
    if (round % group.size() == group.rank()) std::this_thread::sleep_for(std::chrono::milliseconds(1));
    ring->reduce_scatter(own.data(), again.data(), partition);
    CHECK(again == by_ring);
  }
}

TEST_CASE("seconds of waiting for a late rank are told apart where a rank reads what its peers gave", "[collectives]") {
  const RankGroup group(0);
  if (group.size() == 1) return;
  MemoryLedger ledger;
  const Partition partition(1000, group.size());
  for (const std::string name : {"shm", "mpi"}) {
    CountedCommunicator comm(make_communicator(name, group.ranks(), ledger, small_buffers()));
    const auto shared = ledger.take<float>(Memory::workspace, "shared", partition.extent(), comm);
    std::vector<float> own(static_cast<std::size_t>(partition.extent()), 1.0F);
    for (float* full : {shared.data(), own.data()}) {
      CAPTURE(name, group.size(), full == own.data());
      comm.barrier();
      comm.counts().reset();
      if (comm.rank() == comm.size() - 1) std::this_thread::sleep_for(std::chrono::milliseconds(300));
      comm.reduce_scatter(full, full + partition.begin(comm.rank()), partition);
      const auto& count = comm.counts().rows()[0];
      CHECK(count.waited.has_value() == (name == "shm"));
      CHECK(count.waited.value_or(0.0) <= count.seconds);
      if (comm.rank() == 0 && name == "shm")
        CHECK(*count.waited > 0.05);  // the other ranks may begin late on a busy machine
      comm.barrier();
    }
  }
}

TEST_CASE("as many collectives are under way as a back end has room for, and no more", "[collectives]") {
  const RankGroup group(0);
  MemoryLedger ledger;
  struct Limit {
    const char* name;
    int most;
    bool exact;
  };
  for (const auto& [name, most, exact] :
       {Limit{"shm", 16, false}, Limit{"shm", 144, false}, Limit{"ring", 16, false}, Limit{"ring", 16, true}}) {
    CAPTURE(name, most, exact, group.size());
    CommunicatorOptions options = small_buffers();
    options.under_way = static_cast<std::uint64_t>(most);
    options.exact = exact;
    const auto comm = make_communicator(name, group.ranks(), ledger, options);
    const Partition partition(100, comm->size());
    const std::vector<float> full(100);
    std::vector<float> shard(100);
    std::vector<Pending> pending;
    for (int i = 0; i < most; ++i) {
      pending.push_back(comm->start_reduce_scatter(full.data(), shard.data(), partition, {}));
    }
    CHECK_THROWS_AS(comm->start_reduce_scatter(full.data(), shard.data(), partition, {}), Error);
    for (const Pending one : pending) comm->wait(one);
    CHECK_THROWS_AS(comm->wait(pending.front()), Error);
  }
}

TEST_CASE("groups inside a job work side by side", "[collectives]") {
  const RankGroup group(kozero::test::world_rank() % 2);
  MemoryLedger ledger;
  for (const char* name : {"mpi", "shm", "ring"}) {
    CAPTURE(name, group.size());
    const auto comm = make_communicator(name, group.ranks(), ledger, small_buffers());
    check_reduce_scatter(*comm, Partition(4097, group.size()));
    check_all_gather(*comm, Partition(4097, group.size()), 4);
  }
}
