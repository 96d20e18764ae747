// SPDX-FileCopyrightText: The KoZeRO authors
// SPDX-License-Identifier: Apache-2.0
// make_communicator.hpp: the names of comm.backend and the communicator of each; a planned one; MPI's own for
// benchmarks.
//   auto: self for one rank, nccl where each rank has a GPU of its own, shm where all ranks share a node, else mpi
// In a build whose device memory the host cannot read, mpi and shm are wrapped in a staged communicator.
#pragma once
#include <array>
#include <memory>
#include <string>
#include <vector>

#include <kozero/core/device.hpp>
#include <kozero/core/error.hpp>
#include <kozero/core/ledger.hpp>
#include <kozero/dist/communicator.hpp>
#include <kozero/dist/communicator_decorators.hpp>
#include <kozero/dist/distributed_array.hpp>

namespace kozero::dist {

// Rank r of n without peers, for `kozero plan`: every collective throws Error(internal).

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

// MPI's own reduce-scatter and all-gather, to be measured against.
//   reduce_scatter: MPI_Reduce_scatter_block      all_gather: MPI_Allgather
// No back end of training: MPI does not add in rank order. Slices must be equal, and no larger than MPI can count in
// int; else Error(internal). Pointers are host memory.

/// Collective over `mpi_comm`, an `MPI_Comm*`.
std::unique_ptr<Communicator> make_mpi_collectives(const void* mpi_comm);

// Comm.backend's names, and the communicator of each.
//   auto: self for one rank, nccl where each rank has a GPU of its own, shm where all ranks share a node, else mpi
// In a build whose device memory the host cannot read, mpi and shm come inside a `staged` decorator.

/// auto, self, mpi, shm, nccl.
const std::vector<std::string>& backend_names();

/// Throws Error(deck) for a name that is unknown or whose back end is not built. Needs no MPI.
void check_backend_name(const std::string& backend);

/// What `backend` is for these ranks, one of the other names: where it is auto they ask what they have, and rank 0
/// prints one line if that is not what they would expect. Collective over `mpi_comm`, an `MPI_Comm*`.
std::string backend_of(const std::string& backend, const void* mpi_comm, const CommunicatorOptions& options = {});

/// The ranks of each node where these ranks are on several, equally many on each, numbered node by node: over such
/// nodes `mpi` sums by a chain. Otherwise 0. Collective over `mpi_comm`, an `MPI_Comm*`.
int ranks_a_node(const void* mpi_comm, const CommunicatorOptions& options);

/// What `auto` is taken to be for ranks that are not there to be asked: each has its own GPU, or they share a node.
std::string assumed_backend(int size, bool on_gpus = !kHostIsDevice);

/// A communicator over `mpi_comm` (an `MPI_Comm*`, such as Environment::world()), whose ranks all call this. Buffers
/// are booked under Memory::communication. Throws Error(deck, seen by all ranks) where the back end cannot serve these
/// ranks; `auto` prints one line instead and takes another.
std::unique_ptr<Communicator> make_communicator(const std::string& backend, const void* mpi_comm, MemoryLedger& ledger,
                                                const CommunicatorOptions& options = {});

/// `comm` itself, or where it cannot read device memory, inside a `staged` decorator whose buffer is booked.
std::unique_ptr<Communicator> for_device(std::unique_ptr<Communicator> comm, MemoryLedger& ledger,
                                         const CommunicatorOptions& options = {});

/// Rank `rank` of `size` without peers: books what make_communicator does, auto being the assumed back end; every
/// collective throws.
std::unique_ptr<Communicator> make_planned_communicator(const std::string& backend, int rank, int size,
                                                        MemoryLedger& ledger, const CommunicatorOptions& options = {});

/// The communicators of a mesh: of all ranks, and where these are several groups, of this rank's group and replicas.
struct MeshCommunicators {
  std::unique_ptr<CountedCommunicator> all;
  std::unique_ptr<CountedCommunicator> group;     ///< nullptr where all ranks are one group
  std::unique_ptr<CountedCommunicator> replicas;  ///< likewise

  [[nodiscard]] Mesh mesh() const { return group == nullptr ? Mesh(*all) : Mesh(*all, *group, *replicas); }
  /// Of all of them together, by collective.
  [[nodiscard]] std::array<CollectiveCount, 2> counts() const;
  void reset();
};

/// Of `ranks_a_group` ranks each; 0: all ranks. Otherwise as make_communicator.
MeshCommunicators make_mesh(const std::string& backend, const void* mpi_comm, int ranks_a_group, MemoryLedger& ledger,
                            const CommunicatorOptions& options = {});

/// That of rank 0 without peers, as make_planned_communicator.
MeshCommunicators make_planned_mesh(const std::string& backend, int size, int ranks_a_group, MemoryLedger& ledger,
                                    const CommunicatorOptions& options = {});

}  // namespace kozero::dist
