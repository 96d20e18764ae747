// SPDX-FileCopyrightText: The KoZeRO authors
// SPDX-License-Identifier: Apache-2.0
// test_throttled.cpp: a simulated link delays the end of collectives, serves them one after the other, leaves the core
// free, and can be hidden behind other work.
#include <catch2/catch_test_macros.hpp>
#include <ctime>
#include <functional>
#include <thread>
#include <vector>

#include <kozero/distributed/agreement.hpp>
#include <kozero/distributed/communicator_decorators.hpp>
#include <kozero/distributed/make_communicator.hpp>

#include "rank_groups.hpp"

using namespace kozero;
using namespace kozero::distributed;
using kozero::test::RankGroup;
using Clock = SimulatedLink::Clock;

namespace {

double seconds_of(const std::function<void()>& work) {
  const auto start = Clock::now();
  work();
  return std::chrono::duration<double>(Clock::now() - start).count();
}

/// Seconds of computing of this thread.
double computed_s() {
  timespec time{};
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &time);
  return static_cast<double>(time.tv_sec) + 1e-9 * static_cast<double>(time.tv_nsec);
}

CommunicatorOptions throttled(double gbit, double latency_us) {
  CommunicatorOptions options;
  options.timeout_s = 60.0;
  options.throttle_gbit = gbit;
  options.latency_us = latency_us;
  return options;
}

}  // namespace

TEST_CASE("a link sends one transfer after the other: latency + 8 bytes / rate", "[throttled]") {
  using std::chrono::microseconds;
  SimulatedLink link(1.0, 50.0);
  const Clock::time_point start{std::chrono::hours(1)};
  CHECK(link.transfer(1e6, start) == start + microseconds(8050));
  CHECK(link.transfer(0.0, start) == start + microseconds(8100));  // after the transfer before
  CHECK(link.transfer(1e6, start + microseconds(8000)) == start + microseconds(16150));
  CHECK(link.transfer(1e6, start + microseconds(20000)) == start + microseconds(28050));  // the link was free
  SimulatedLink slow(0.0, 50.0);
  CHECK(slow.transfer(1e12, start) == start + microseconds(50));
}

TEST_CASE("collectives last as long as S (n-1)/n bytes on the link, and the thread sleeps", "[throttled]") {
  const RankGroup group(0);
  if (group.size() == 1) return;
  MemoryLedger ledger;
  for (const char* name : {"mpi", "shm", "ring"}) {
    CAPTURE(name, group.size());
    const auto comm = make_communicator(name, group.ranks(), ledger, throttled(0.1, 10000.0));
    const Partition partition(64 * 1000 * group.size(), group.size());
    const std::vector<float> full(static_cast<std::size_t>(partition.extent()), 1.0F);
    std::vector<float> shard(static_cast<std::size_t>(partition.size(comm->rank())));
    const double transfer = 0.01 + 8.0 * 4.0 * 64000.0 * (group.size() - 1) / 0.1e9;
    comm->barrier();
    const double before = computed_s();
    const double took = seconds_of([&] { comm->reduce_scatter(full.data(), shard.data(), partition); });
    CHECK(took >= transfer);
    CHECK(computed_s() - before < 0.8 * transfer);  // the rest of a collective computes; a loop would take all of it
    CHECK(shard.back() == static_cast<float>(group.size()));

    // Two at once: the second follows the first, and other work hides the transfers.
    std::vector<float> all(full.size());
    comm->barrier();
    const double both = seconds_of([&] {
      const Pending first = comm->start_all_gather(shard.data(), all.data(), partition, sizeof(float));
      const Pending second = comm->start_reduce_scatter(full.data(), shard.data(), partition, {});
      std::this_thread::sleep_for(std::chrono::duration<double>(2.0 * transfer));  // other work
      const double rest = seconds_of([&] {
        comm->wait(first);
        comm->wait_until_reusable(first);
      });
      CHECK(rest < transfer);
      comm->wait(second);
      comm->wait_until_reusable(second);
    });
    CHECK(both >= 2.0 * transfer);
    CHECK(all.back() == static_cast<float>(group.size()));
    comm->barrier();
    CHECK(seconds_of([&] { comm->barrier(); }) < transfer);  // control traffic is not delayed
  }
}

TEST_CASE("the communicators of a mesh share their rank's link; one rank has none", "[throttled]") {
  const RankGroup group(0);
  MemoryLedger ledger;
  const CommunicatorOptions options = throttled(0.0, 100000.0);
  if (group.size() == 1) {
    const auto comm = make_communicator("mpi", group.ranks(), ledger, options);
    const std::vector<float> full(64, 1.0F);
    std::vector<float> shard(64);
    CHECK(seconds_of([&] { comm->reduce_scatter(full.data(), shard.data(), Partition(64, 1)); }) < 0.1);
    return;
  }
  if (group.size() % 2 != 0) return;
  const int of_group = group.size() == 2 ? 1 : 2;
  const MeshCommunicators mesh = make_mesh("mpi", group.ranks(), of_group, ledger, options);
  Communicator& replicas = *mesh.replicas;
  std::vector<float> full(64 * static_cast<std::size_t>(group.size()), 1.0F);
  std::vector<float> other(64 * static_cast<std::size_t>(replicas.size()));
  const Partition of_all(std::ssize(full), group.size());
  const Partition of_replicas(std::ssize(other), replicas.size());
  const double took = seconds_of([&] {
    const Pending first = mesh.all->start_all_gather(full.data() + of_all.begin(group.rank()), full.data(), of_all, 4);
    const Pending second =
        replicas.start_all_gather(other.data() + of_replicas.begin(replicas.rank()), other.data(), of_replicas, 4);
    mesh.all->wait(first);
    replicas.wait(second);
  });
  CHECK(took >= 0.2);
}
