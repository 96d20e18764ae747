// SPDX-FileCopyrightText: The KoZeRO authors
// SPDX-License-Identifier: Apache-2.0
// environment.cpp: MPI started and ended once; the ranks of this node counted.
#include <mpi.h>

#include <algorithm>
#include <cstdlib>
#include <string>
#include <vector>

#include <kozero/core/host_cpus.hpp>
#include <kozero/dist/environment.hpp>

#include "mpi_check.hpp"

namespace kozero::dist {
namespace {

const MPI_Comm kWorld = MPI_COMM_WORLD;

/// The CPUs that each of the node's ranks may run on, in the same form.
std::vector<std::string> cpus_of_all(MPI_Comm node, int local_ranks) {
  constexpr int kLength = 4096;  // of more ranges than any machine's
  std::string mine = as_ranges(allowed_cpus());
  mine.resize(kLength, '\0');
  std::string all(static_cast<std::size_t>(local_ranks) * kLength, '\0');
  check_mpi(MPI_Allgather(mine.data(), kLength, MPI_CHAR, all.data(), kLength, MPI_CHAR, node), "MPI_Allgather");
  std::vector<std::string> each;
  for (int r = 0; r < local_ranks; ++r) each.push_back(all.substr(static_cast<std::size_t>(r) * kLength, kLength));
  return each;
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
  const auto cpus = cpus_of_all(node, local_ranks_);
  const auto mine = cpus.begin() + local_rank_;
  cpu_sharers_ = static_cast<int>(std::count(cpus.begin(), cpus.end(), *mine));
  cpu_sharer_ = static_cast<int>(std::count(cpus.begin(), mine, *mine));
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
