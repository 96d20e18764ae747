// SPDX-FileCopyrightText: The KoZeRO authors
// SPDX-License-Identifier: Apache-2.0
// rank_groups.hpp: groups of 1, 2, ... ranks inside one MPI test program.
//   for_each_group_size([](const RankGroup& group) { ... make_communicator("mpi", group.ranks(), ledger) ... });
#pragma once
#include <mpi.h>
#include <chrono>
#include <thread>

#include "src/distributed/group_communicator.hpp"

namespace kozero::test {

/// Waits for all ranks. A rank that waits sleeps, and leaves its core to the others: MPI_Barrier would spin.
inline void meet() {
  MPI_Request request = MPI_REQUEST_NULL;
  MPI_Ibarrier(MPI_COMM_WORLD, &request);
  for (int done = 0; done == 0;) {
    MPI_Test(&request, &done, MPI_STATUS_IGNORE);
    if (done == 0) std::this_thread::sleep_for(std::chrono::microseconds(100));
  }
}

/// The ranks of the world that pass the same color, in the world's order.
class RankGroup {
 public:
  explicit RankGroup(int color) {
    meet();
    MPI_Comm_split(MPI_COMM_WORLD, color, 0, &comm_);
    MPI_Comm_rank(comm_, &rank_);
    MPI_Comm_size(comm_, &size_);
  }
  ~RankGroup() { MPI_Comm_free(&comm_); }
  RankGroup(const RankGroup&) = delete;
  RankGroup& operator=(const RankGroup&) = delete;

  [[nodiscard]] distributed::Ranks ranks() const { return distributed::ranks_of(comm_); }
  [[nodiscard]] int rank() const { return rank_; }
  [[nodiscard]] int size() const { return size_; }

 private:
  MPI_Comm comm_ = MPI_COMM_NULL;
  int rank_ = 0;
  int size_ = 1;
};

inline int world_size() {
  int size = 1;
  MPI_Comm_size(MPI_COMM_WORLD, &size);
  return size;
}

inline int world_rank() {
  int rank = 0;
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  return rank;
}

/// For n = 1, 2, ... world size: the first n ranks call `body` as one group, and the remaining ranks as another.
template <class Body>
void for_each_group_size(const Body& body) {
  for (int n = 1; n <= world_size(); ++n) {
    const RankGroup group(world_rank() < n ? 0 : 1);
    body(group);
  }
}

}  // namespace kozero::test
