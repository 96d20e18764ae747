// SPDX-FileCopyrightText: The KoZeRO authors
// SPDX-License-Identifier: Apache-2.0
// mpi_collectives.cpp: MPI_Reduce_scatter_block and MPI_Allgather behind the interface of a communicator.
#include <limits>

#include <kozero/core/error.hpp>
#include <kozero/core/views.hpp>
#include <kozero/distributed/make_communicator.hpp>
#include "src/distributed/group_communicator.hpp"
#include "src/distributed/liveness/watchdog.hpp"

namespace kozero::distributed {
namespace {

class MpiCollectives final : public GroupCommunicator {
 public:
  explicit MpiCollectives(const Ranks& ranks) : GroupCommunicator(ranks, {.label = "MPI's own"}) {}

  [[nodiscard]] std::string name() const override { return "MPI's own"; }

  [[nodiscard]] bool adds_in_order() const override { return false; }

  Pending start_reduce_scatter(const float* full, float* shard, const Partition& partition, Fold fold) override {
    require(fold.num_ranks(size()) == size() && !fold.onto, "MPI's own reduce_scatter adds all ranks' arrays alone");
    Device().fence("kozero::distributed::mpi_collectives::reduce_scatter");
    const int count = equal_slices(partition, 1);
    require(shard != full + partition.begin(rank()), "MPI's own reduce_scatter does not work in place");
    const BlockingCall call("MPI_Reduce_scatter_block");
    check_mpi(MPI_Reduce_scatter_block(full, shard, count, MPI_FLOAT, MPI_SUM, mpi()), "MPI_Reduce_scatter_block");
    return {Collective::reduce_scatter};
  }

  Pending start_all_gather(const void* shard, void* full, const Partition& partition,
                           std::size_t element_size) override {
    Device().fence("kozero::distributed::mpi_collectives::all_gather");
    const int count = equal_slices(partition, static_cast<std::int64_t>(element_size));
    const void* const own =
        static_cast<char*>(full) + partition.begin(rank()) * static_cast<std::int64_t>(element_size);
    const BlockingCall call("MPI_Allgather");
    check_mpi(MPI_Allgather(shard == own ? MPI_IN_PLACE : shard, count, MPI_BYTE, full, count, MPI_BYTE, mpi()),
              "MPI_Allgather");
    return {Collective::all_gather};
  }

 private:
  /// The bytes of a shard, or its elements if `element` is 1.
  [[nodiscard]] int equal_slices(const Partition& partition, std::int64_t element) const {
    require(partition.num_ranks() == size() && partition.largest() * size() == partition.extent() &&
                partition.largest() * element <= std::numeric_limits<int>::max(),
            "MPI's own collectives: the shards are not equal, or too large");
    return static_cast<int>(partition.largest() * element);
  }
};

}  // namespace

std::unique_ptr<Communicator> make_mpi_collectives(const Ranks& ranks) {
  return std::make_unique<MpiCollectives>(ranks);
}

}  // namespace kozero::distributed
