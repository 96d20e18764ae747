// SPDX-FileCopyrightText: The KoZeRO authors
// SPDX-License-Identifier: Apache-2.0
// environment.cpp: MPI started and ended once; the ranks of this node counted.
#include <mpi.h>

#include <cstdlib>

#include <kozero/dist/environment.hpp>

#include "mpi_check.hpp"

namespace kozero::dist {
namespace {

const MPI_Comm kWorld = MPI_COMM_WORLD;

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
