// SPDX-FileCopyrightText: The KoZeRO authors
// SPDX-License-Identifier: Apache-2.0
// thread_placement.hpp: how many threads a rank gets, and on which CPUs each of them stays.
//   cores that k ranks may use alike are cut into k equal, contiguous shares; where each rank was given its own, k = 1
//   threads = what was asked for, else one a core of the share      thread i of t: cores [i n / t, (i + 1) n / t) of n
// A thread that has cores to itself is bound to them; nobody is bound where there are more threads than cores, where
// OMP_PROC_BIND=false says so, or where OpenMP has bound the threads inside a launcher's share already.
#pragma once
#include <string>
#include <vector>

#include <kozero/core/host_cpus.hpp>

namespace kozero::train {

/// What is known before any thread is there.
struct Surroundings {
  std::vector<CpuSet> cores;   ///< that this process may use
  int sharers = 1;             ///< ranks of this node that may use exactly these, this one counted
  int sharer = 0;              ///< which of them this is
  int asked_threads = 0;       ///< run.threads, else OMP_NUM_THREADS; 0: neither
  std::string proc_bind = {};  ///< OMP_PROC_BIND, "" where it is not set
};

struct ThreadPlacement {
  int threads = 1;
  std::vector<CpuSet> cpus = {};  ///< by thread; empty: not bound by us
  std::string text = {};          ///< "1 thread bound to CPU 0, of 0-1 shared by 2 ranks"
  std::string crowding = {};      ///< where the ranks have more threads than cores: the numbers and what to do
};

ThreadPlacement thread_placement(const Surroundings& surroundings);

}  // namespace kozero::train
