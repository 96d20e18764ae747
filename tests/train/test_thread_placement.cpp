// SPDX-FileCopyrightText: The KoZeRO authors
// SPDX-License-Identifier: Apache-2.0
// test_thread_placement.cpp: shares of cores for ranks and threads, with and without a launcher's binding.
#include <catch2/catch_test_macros.hpp>

#include <kozero/train/runtime.hpp>

using namespace kozero;
using train::Surroundings;
using train::thread_placement;

namespace {

std::vector<CpuSet> plain_cores(int count) {
  std::vector<CpuSet> cores;
  for (int cpu = 0; cpu < count; ++cpu) cores.push_back({cpu});
  return cores;
}

}  // namespace

TEST_CASE("one rank has as many threads as cores, each of which may use all of them") {
  const auto placement = thread_placement({.cores = plain_cores(2)});
  CHECK(placement.threads == 2);
  CHECK(placement.cpus == std::vector<CpuSet>{{0, 1}, {0, 1}});
  CHECK(placement.text == "2 threads bound to CPUs 0-1");
}

TEST_CASE("ranks that may use the same cores share them out") {
  CpuSet taken;
  for (int rank = 0; rank < 3; ++rank) {
    const auto placement = thread_placement({.cores = plain_cores(8), .sharers = 3, .sharer = rank});
    CHECK(static_cast<std::size_t>(placement.threads) == placement.cpus.size());
    for (const CpuSet& cpus : placement.cpus) CHECK(cpus == placement.cpus.front());
    taken.insert(taken.end(), placement.cpus.front().begin(), placement.cpus.front().end());
  }
  CHECK(taken == CpuSet{0, 1, 2, 3, 4, 5, 6, 7});
  const auto second = thread_placement({.cores = plain_cores(2), .sharers = 2, .sharer = 1});
  CHECK(second.cpus == std::vector<CpuSet>{{1}});
  CHECK(second.text == "1 thread bound to CPU 1, of 0-1 shared by 2 ranks");
}

TEST_CASE("hyperthreads count as one core, and fewer threads than cores may use all of them") {
  const std::vector<CpuSet> cores = {{0, 4}, {1, 5}, {2, 6}, {3, 7}};
  CHECK(thread_placement({.cores = cores}).threads == 4);
  const CpuSet all = {0, 1, 2, 3, 4, 5, 6, 7};
  CHECK(thread_placement({.cores = cores}).cpus == std::vector<CpuSet>(4, all));
  const auto two = thread_placement({.cores = cores, .asked_threads = 2});
  CHECK(two.cpus == std::vector<CpuSet>(2, all));
  CHECK(two.text == "2 threads bound to CPUs 0-7");
}

TEST_CASE("nobody is bound who must share a core, or who asks for it") {
  const auto crowded = thread_placement({.cores = plain_cores(2), .asked_threads = 3});
  CHECK(crowded.threads == 3);
  CHECK(crowded.cpus.empty());
  CHECK(crowded.text == "3 threads on CPUs 0-1, not bound: there are more threads than cores");
  int unbound = 0;
  for (int rank = 0; rank < 4; ++rank) {
    const auto placement = thread_placement({.cores = plain_cores(2), .sharers = 4, .sharer = rank});
    CHECK(placement.threads == 1);
    unbound += placement.cpus.empty();
  }
  CHECK(unbound == 4);
  const auto asked = thread_placement({.cores = plain_cores(2), .proc_bind = "FALSE"});
  CHECK(asked.cpus.empty());
  CHECK(asked.text == "2 threads on CPUs 0-1, not bound: OMP_PROC_BIND=FALSE");
}

TEST_CASE("OpenMP's own binding is kept inside a launcher's share, and overruled where it would pile ranks up") {
  const auto kept = thread_placement({.cores = plain_cores(2), .proc_bind = "close"});
  CHECK(kept.cpus.empty());
  CHECK(kept.text == "2 threads on CPUs 0-1, bound by OMP_PROC_BIND=close");
  const auto overruled = thread_placement({.cores = plain_cores(2), .sharers = 2, .sharer = 1, .proc_bind = "true"});
  CHECK(overruled.cpus == std::vector<CpuSet>{{1}});
}

TEST_CASE("more threads than cores are told, with the numbers") {
  CHECK(thread_placement({.cores = plain_cores(4), .sharers = 2, .asked_threads = 2}).crowding.empty());
  CHECK(thread_placement({.cores = plain_cores(4), .sharers = 2, .asked_threads = 3}).crowding ==
        "2 ranks with 3 threads each share 4 cores (CPUs 0-3), threads wait for each other: start fewer ranks, give "
        "run.threads = 2, or let them have more cores (srun --cpus-per-task, mpiexec -bind-to)");
  CHECK(thread_placement({.cores = plain_cores(1), .asked_threads = 2})
            .crowding.starts_with("1 rank with 2 threads share 1 core (CPU 0), "));
  CHECK(thread_placement({.cores = plain_cores(2), .sharers = 3}).crowding ==
        "3 ranks with 1 thread each share 2 cores (CPUs 0-1), threads wait for each other: start fewer ranks, or let "
        "them have more cores (srun --cpus-per-task, mpiexec -bind-to)");
}
