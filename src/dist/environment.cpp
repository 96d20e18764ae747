// SPDX-FileCopyrightText: The KoZeRO authors
// SPDX-License-Identifier: Apache-2.0
// environment.cpp: MPI started and ended once; the ranks of this node counted.
#include <mpi.h>
#include <sched.h>

#include <algorithm>
#include <array>
#include <cstdlib>
#include <cstring>
#include <vector>

#include <kozero/dist/environment.hpp>

#include "mpi_check.hpp"

namespace kozero::dist {
namespace {

const MPI_Comm kWorld = MPI_COMM_WORLD;

using CpuBytes = std::array<char, sizeof(cpu_set_t)>;

/// How many of the node's ranks may run on exactly the CPUs that this one may run on, itself among them.
int count_cpu_sharers(MPI_Comm node, int local_ranks) {
  cpu_set_t set;
  CPU_ZERO(&set);
  if (sched_getaffinity(0, sizeof(set), &set) != 0) CPU_ZERO(&set);
  CpuBytes mine{};
  std::memcpy(mine.data(), &set, mine.size());
  std::vector<CpuBytes> all(static_cast<std::size_t>(local_ranks));
  const int count = static_cast<int>(mine.size());
  check_mpi(MPI_Allgather(mine.data(), count, MPI_CHAR, all.data(), count, MPI_CHAR, node), "MPI_Allgather");
  return static_cast<int>(std::count(all.begin(), all.end(), mine));
}

}  // namespace

Environment::Environment(int* argc, char*** argv) {
  int running = 0;
  check_mpi(MPI_Initialized(&running), "MPI_Initialized");
  if (running != 0) {
    check_mpi(MPI_Query_thread(&provided_), "MPI_Query_thread");
  } else {
    check_mpi(MPI_Init_thread(argc, argv, MPI_THREAD_MULTIPLE, &provided_), "MPI_Init_thread");
    owned_ = true;
  }
  check_mpi(MPI_Comm_set_errhandler(kWorld, MPI_ERRORS_RETURN), "MPI_Comm_set_errhandler");
  check_mpi(MPI_Comm_rank(kWorld, &rank_), "MPI_Comm_rank");
  check_mpi(MPI_Comm_size(kWorld, &size_), "MPI_Comm_size");
  MPI_Comm node = MPI_COMM_NULL;
  check_mpi(MPI_Comm_split_type(kWorld, MPI_COMM_TYPE_SHARED, rank_, MPI_INFO_NULL, &node), "MPI_Comm_split_type");
  check_mpi(MPI_Comm_rank(node, &local_rank_), "MPI_Comm_rank");
  check_mpi(MPI_Comm_size(node, &local_ranks_), "MPI_Comm_size");
  cpu_sharers_ = count_cpu_sharers(node, local_ranks_);
  check_mpi(MPI_Comm_free(&node), "MPI_Comm_free");
}

Environment::~Environment() {
  int finalized = 0;
  MPI_Finalized(&finalized);
  if (owned_ && finalized == 0) MPI_Finalize();
}

bool Environment::thread_multiple() const { return provided_ == MPI_THREAD_MULTIPLE; }

const void* Environment::world() const { return &kWorld; }

void Environment::abort(int status) {
  MPI_Abort(MPI_COMM_WORLD, status);
  std::abort();
}

}  // namespace kozero::dist
