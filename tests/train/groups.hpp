// SPDX-FileCopyrightText: The KoZeRO authors
// SPDX-License-Identifier: Apache-2.0
// groups.hpp: one MPI program as several groups of ranks, so that it covers several rank counts.
#pragma once
#include <functional>
#include <string>
#include <vector>

#include <mpi.h>

#include <kozero/core/ledger.hpp>
#include <kozero/dist/make_communicator.hpp>

namespace kozero::tests {

inline int world_size() {
  int size = 0;
  MPI_Comm_size(MPI_COMM_WORLD, &size);
  return size;
}

/// Those of 1, 2, 3, 4, 7 that the world has ranks for.
inline std::vector<int> group_sizes() {
  std::vector<int> sizes;
  for (const int size : {1, 2, 3, 4, 7}) {
    if (size <= world_size()) sizes.push_back(size);
  }
  return sizes;
}

/// Runs `body` on the first `num_ranks` ranks of the world with a communicator of theirs; the others wait.
inline void on_first_ranks(int num_ranks, const std::string& backend,
                           const std::function<void(dist::Communicator&, MemoryLedger&)>& body) {
  int rank = 0;
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Comm group = MPI_COMM_NULL;
  MPI_Comm_split(MPI_COMM_WORLD, rank < num_ranks ? 0 : MPI_UNDEFINED, rank, &group);
  if (group != MPI_COMM_NULL) {
    {
      MemoryLedger ledger;
      const auto comm = dist::make_communicator(backend, &group, ledger);
      body(*comm, ledger);
    }
    MPI_Comm_free(&group);
  }
  MPI_Barrier(MPI_COMM_WORLD);
}

}  // namespace kozero::tests
