// SPDX-FileCopyrightText: The KoZeRO authors
// SPDX-License-Identifier: Apache-2.0
// groups.hpp: one MPI program as several groups of ranks, so that it covers several rank counts.
#pragma once
#include <string>
#include <type_traits>
#include <vector>

#include <distributed/rank_groups.hpp>
#include <kozero/distributed/make_communicator.hpp>

namespace kozero::tests {

/// 1, 2, 3, 4 and 7, as far as the world has so many ranks.
inline std::vector<int> group_sizes() {
  std::vector<int> sizes;
  for (const int size : {1, 2, 3, 4, 7}) {
    if (size <= test::world_size()) sizes.push_back(size);
  }
  return sizes;
}

/// Runs `body(comm)`, or `body(comm, ranks)` with the group's ranks too, on the first `num_ranks` ranks of the world
/// (one rank: "self"); the other ranks wait.
template <class Body>
void on_first_ranks(int num_ranks, const std::string& backend, const Body& body,
                    const distributed::CommunicatorOptions& options = {}) {
  const test::RankGroup group(test::world_rank() < num_ranks ? 0 : 1);
  if (test::world_rank() < num_ranks) {
    MemoryLedger ledger;
    const auto comm = distributed::make_communicator(num_ranks == 1 ? "self" : backend, group.ranks(), ledger, options);
    if constexpr (std::is_invocable_v<const Body&, distributed::Communicator&>) {
      body(*comm);
    } else {
      body(*comm, group.ranks());
    }
  }
  test::meet();
}

/// Runs `body(communicators)`, or `body(communicators, ranks)`, on the mesh of the first `num_ranks` ranks in groups
/// of `ranks_per_group` (0: one group); the other ranks wait.
template <class Body>
void on_first_mesh(int num_ranks, int ranks_per_group, const std::string& backend, const Body& body,
                   const distributed::CommunicatorOptions& options = {}) {
  const test::RankGroup group(test::world_rank() < num_ranks ? 0 : 1);
  if (test::world_rank() < num_ranks) {
    MemoryLedger ledger;
    distributed::MeshCommunicators mesh =
        distributed::make_mesh(num_ranks == 1 ? "self" : backend, group.ranks(), ranks_per_group, ledger, options);
    if constexpr (std::is_invocable_v<const Body&, distributed::MeshCommunicators&>) {
      body(mesh);
    } else {
      body(mesh, group.ranks());
    }
  }
  test::meet();
}

/// on_first_ranks for every group size.
template <class Body>
void on_each_group(const std::string& backend, const Body& body) {
  for (const int num_ranks : group_sizes()) on_first_ranks(num_ranks, backend, body);
}

}  // namespace kozero::tests
