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
  CHECK(placement.binds);
  CHECK(placement.cpus == CpuSet{0, 1});
  CHECK(placement.text == "2 threads bound to CPUs 0-1");
}

TEST_CASE("ranks that may use the same cores share them out") {
  CpuSet taken;
  for (int rank = 0; rank < 3; ++rank) {
    const auto placement = thread_placement({.cores = plain_cores(8), .sharers = 3, .sharer = rank});
    CHECK(placement.threads == std::ssize(placement.cpus));
    taken.insert(taken.end(), placement.cpus.begin(), placement.cpus.end());
  }
  CHECK(taken == CpuSet{0, 1, 2, 3, 4, 5, 6, 7});
  const auto second = thread_placement({.cores = plain_cores(2), .sharers = 2, .sharer = 1});
  CHECK(second.cpus == CpuSet{1});
  CHECK(second.text == "1 thread bound to CPU 1, of 0-1 shared by 2 ranks");
}

TEST_CASE("hyperthreads count as one core, and fewer threads than cores may use all of them") {
  const std::vector<CpuSet> cores = {{0, 4}, {1, 5}, {2, 6}, {3, 7}};
  CHECK(thread_placement({.cores = cores}).threads == 4);
  const CpuSet all = {0, 1, 2, 3, 4, 5, 6, 7};
  CHECK(thread_placement({.cores = cores}).cpus == all);
  const auto two = thread_placement({.cores = cores, .asked_threads = 2});
  CHECK(two.cpus == all);
  CHECK(two.text == "2 threads bound to CPUs 0-7");
}

TEST_CASE("threads that must share a core, or of runs that ask for it, are not bound") {
  const auto crowded = thread_placement({.cores = plain_cores(2), .asked_threads = 3});
  CHECK(crowded.threads == 3);
  CHECK_FALSE(crowded.binds);
  CHECK(crowded.cpus == CpuSet{0, 1});
  CHECK(crowded.text == "3 threads on CPUs 0-1, not bound: there are more threads than cores");
  int unbound = 0;
  for (int rank = 0; rank < 4; ++rank) {
    const auto placement = thread_placement({.cores = plain_cores(2), .sharers = 4, .sharer = rank});
    CHECK(placement.threads == 1);
    unbound += placement.binds ? 0 : 1;
  }
  CHECK(unbound == 4);
  const auto asked = thread_placement({.cores = plain_cores(2), .proc_bind = "FALSE"});
  CHECK_FALSE(asked.binds);
  CHECK(asked.text == "2 threads on CPUs 0-1, not bound: OMP_PROC_BIND=FALSE");
  const auto key = thread_placement({.cores = plain_cores(2), .sharers = 2, .sharer = 1, .bind = train::Bind::none});
  CHECK_FALSE(key.binds);
  CHECK(key.threads == 1);
  CHECK(key.cpus == CpuSet{0, 1});
  CHECK(key.text == "1 thread on CPUs 0-1, not bound: run.bind = \"none\"");
}

TEST_CASE("OpenMP's own binding is kept inside a launcher's share, and overruled if it would bind ranks to one core") {
  const auto kept = thread_placement({.cores = plain_cores(2), .proc_bind = "close"});
  CHECK_FALSE(kept.binds);
  CHECK(kept.text == "2 threads on CPUs 0-1, bound by OMP_PROC_BIND=close");
  const auto asked =
      thread_placement({.cores = plain_cores(2), .sharers = 2, .proc_bind = "close", .bind = train::Bind::none});
  CHECK_FALSE(asked.binds);
  CHECK(asked.text == "1 thread on CPUs 0-1, bound by OMP_PROC_BIND=close");
  const auto overruled = thread_placement({.cores = plain_cores(2), .sharers = 2, .sharer = 1, .proc_bind = "true"});
  CHECK(overruled.cpus == CpuSet{1});
}
