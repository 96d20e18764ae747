// SPDX-FileCopyrightText: The KoZeRO authors
// SPDX-License-Identifier: Apache-2.0
// node_layout.cpp: which ranks share a node.
#include <mpi.h>
#include <algorithm>
#include <vector>

#include "src/distributed/group_communicator.hpp"
#include "src/distributed/liveness/watchdog.hpp"
#include "src/distributed/nodes/node_layout.hpp"

namespace kozero::distributed {

namespace {

/// The first rank on this rank's node.
int first_rank_on_node(MPI_Comm comm, int simulated) {
  int rank = 0;
  check_mpi(MPI_Comm_rank(comm, &rank), "MPI_Comm_rank");
  if (simulated > 0) return rank / simulated * simulated;
  const BlockingCall call("MPI_Comm_split_type");
  MPI_Comm node = MPI_COMM_NULL;
  int first = rank;
  check_mpi(MPI_Comm_split_type(comm, MPI_COMM_TYPE_SHARED, rank, MPI_INFO_NULL, &node), "MPI_Comm_split_type");
  check_mpi(MPI_Bcast(&first, 1, MPI_INT, 0, node), "MPI_Bcast");
  check_mpi(MPI_Comm_free(&node), "MPI_Comm_free");
  return first;
}

}  // namespace

NodeLayout node_layout(const Ranks& ranks, int simulated) {
  const MPI_Comm comm = mpi_comm(ranks);
  const int size = ranks.size();
  const int mine = first_rank_on_node(comm, simulated);
  std::vector<int> first(static_cast<std::size_t>(size));
  const BlockingCall call("MPI_Allgather");
  check_mpi(MPI_Allgather(&mine, 1, MPI_INT, first.data(), 1, MPI_INT, comm), "MPI_Allgather");
  const auto ranks_per_node = static_cast<int>(std::ranges::count(first, first[0]));
  for (int rank = 0; rank < size; ++rank) {
    const bool regular = first[static_cast<std::size_t>(rank)] == rank / ranks_per_node * ranks_per_node;
    if (!regular || size % ranks_per_node != 0) return {.num_nodes = 0, .ranks_per_node = 0};
  }
  return {size / ranks_per_node, ranks_per_node};
}

}  // namespace kozero::distributed
