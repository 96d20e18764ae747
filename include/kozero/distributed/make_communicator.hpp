// SPDX-FileCopyrightText: The KoZeRO authors
// SPDX-License-Identifier: Apache-2.0
// make_communicator.hpp: the back ends of comm.backend and their communicators; a communicator for planning; MPI's own
// collectives for benchmarks.
//   auto: self for one rank, nccl if each rank has a GPU of its own, shm if all ranks share a node, else mpi
// In a build whose device memory the host cannot read, mpi, shm and ring are wrapped in a staged communicator.
#pragma once
#include <memory>
#include <string>
#include <vector>

#include <kozero/core/device.hpp>
#include <kozero/core/error.hpp>
#include <kozero/core/ledger.hpp>
#include <kozero/distributed/communicator.hpp>
#include <kozero/distributed/communicator_decorators.hpp>
#include <kozero/distributed/distributed_array.hpp>
#include <kozero/distributed/environment.hpp>

namespace kozero::distributed {

/// Rank r of n without peers, for `kozero plan`. Every collective throws Error(internal).
class PlannedCommunicator final : public Communicator {
 public:
  PlannedCommunicator(int rank, int size) : rank_(rank), size_(size) {}

  [[nodiscard]] int rank() const override { return rank_; }
  [[nodiscard]] int size() const override { return size_; }
  [[nodiscard]] std::string name() const override { return "planned"; }

  Pending start_reduce_scatter(const float*, float*, const Partition&, Fold) override { refuse("reduce_scatter"); }
  Pending start_all_gather(const void*, void*, const Partition&, std::size_t) override { refuse("all_gather"); }
  void barrier() override { refuse("barrier"); }
  std::vector<std::byte> gather_control(std::span<const std::byte>) override { refuse("gather_control"); }
  std::string broadcast_control(const std::string&) override { refuse("broadcast_control"); }

 private:
  [[noreturn]] static void refuse(const char* collective) {
    throw Error(Failure::internal, std::string(collective) + " was called while planning, where no rank has peers");
  }

  int rank_;
  int size_;
};

/// MPI's own reduce-scatter and all-gather, as a reference for benchmarks. Collective over `ranks`.
///   reduce_scatter: MPI_Reduce_scatter_block      all_gather: MPI_Allgather
/// Not a back end for training: MPI does not add in rank order. Shards must be equal, and no larger than MPI can count
/// in int; otherwise the collective throws Error(internal). Pointers are host memory.
std::unique_ptr<Communicator> make_mpi_collectives(const Ranks& ranks);

/// Throws Error(deck, seen by all ranks) for an unknown name. Makes no MPI call.
void check_backend_name(const std::string& backend);

/// `backend`, with auto replaced by the back end that these ranks can use. Rank 0 prints one line that says why auto
/// passed over a faster back end. Collective over `ranks`.
std::string backend_of(const std::string& backend, const Ranks& ranks, const CommunicatorOptions& options = {});

/// Ranks per node, if these ranks are on several nodes with equally many ranks, numbered node by node; otherwise 0.
/// Only on such nodes can `mpi` pass sums from node to node. Collective over `ranks`.
int ranks_per_node(const Ranks& ranks, const CommunicatorOptions& options);

/// "1 Gbit/s and 50 us per collective": the link that these options simulate; "" if none.
std::string simulated_network(const CommunicatorOptions& options);

/// Whether the back end `backend`, not auto, adds in rank order with this value of comm.exact.
bool adds_in_order(const std::string& backend, bool exact);

/// The back ends that add in rank order, whatever the options, and serve `size` ranks, on one node or on several.
std::vector<std::string> back_ends_in_order(int size, bool on_one_node);

/// The back end that planning assumes for `auto`: each rank has its own GPU, or all ranks share a node.
std::string assumed_backend(int size, bool on_gpus = !kHostIsDevice);

/// A communicator over `ranks`, such as Environment::world(). Collective. Buffers are booked under
/// Memory::communication. Throws Error(deck, seen by all ranks) if the back end cannot serve these ranks; `auto`
/// prints one line instead and uses another back end.
std::unique_ptr<Communicator> make_communicator(const std::string& backend, const Ranks& ranks, MemoryLedger& ledger,
                                                const CommunicatorOptions& options = {});

/// How the names of collectives begin in traces, whatever the back end: by it, tools for PyTorch's traces know them.
inline constexpr const char* kTracePrefix = "ncclKernel";

/// What the communicators of a rank share.
struct OfRank {
  std::shared_ptr<CollectiveCounts> counts = {};  ///< where they count calls and bytes; nullptr: nowhere
  int ranks_per_group = 0;                        ///< as in CountedCommunicator
  const char* joins = "all ranks";                ///< the same
  std::shared_ptr<SimulatedLink> link = {};       ///< nullptr: each has one of its own, if the options simulate any
};

/// `comm` in the decorators of a communicator of `ranks`: `checked` if the options say so; `staged`, whose buffer is
/// booked, if `comm` does not read device memory; `throttled` if the options simulate a link; `counted` if `of_rank`
/// has counts.
std::unique_ptr<Communicator> decorated(std::unique_ptr<Communicator> comm, bool reads_device_memory,
                                        const Ranks& ranks, MemoryLedger& ledger,
                                        const CommunicatorOptions& options = {}, const OfRank& of_rank = {});

/// Rank `rank` of `size` without peers. Books what make_communicator books (for auto, that of the assumed back end);
/// every collective throws.
std::unique_ptr<Communicator> make_planned_communicator(const std::string& backend, int rank, int size,
                                                        MemoryLedger& ledger, const CommunicatorOptions& options = {});

/// The communicators of a mesh: of all ranks and, if there are several groups, of this rank's group and replicas.
struct MeshCommunicators {
  std::unique_ptr<Communicator> all;
  std::unique_ptr<Communicator> group;     ///< nullptr if all ranks are one group
  std::unique_ptr<Communicator> replicas;  ///< likewise
  /// What the three count, in one sum.
  std::shared_ptr<CollectiveCounts> counts = std::make_shared<CollectiveCounts>();

  [[nodiscard]] Mesh mesh() const { return group == nullptr ? Mesh(*all) : Mesh(*all, *group, *replicas); }
};

/// A mesh of groups of `ranks_per_group` ranks; 0: all ranks are one group. Errors as in make_communicator.
MeshCommunicators make_mesh(const std::string& backend, const Ranks& ranks, int ranks_per_group, MemoryLedger& ledger,
                            const CommunicatorOptions& options = {});

/// The mesh of rank 0 without peers, as make_planned_communicator.
MeshCommunicators make_planned_mesh(const std::string& backend, int size, int ranks_per_group, MemoryLedger& ledger,
                                    const CommunicatorOptions& options = {});

}  // namespace kozero::distributed
