// SPDX-FileCopyrightText: The KoZeRO authors
// SPDX-License-Identifier: Apache-2.0
// nccl_communicator.hpp: collectives between GPUs, one a rank, by NCCL on a stream of their own.
//   start:   compute stream --given--> communication stream: the collective, --done-->
//   finish:  --done--> compute stream
// So a collective reads what kernels before its start wrote and writes what they had read, kernels after its finish see
// the result, and the host waits for neither, only until NCCL has put the collective on its stream. Equal slices are
// one ncclReduceScatter or ncclAllGather; uneven ones a group of ncclReduce or ncclBroadcast, one a slice that is not
// empty. What is passed is free after finish, so that reclaim has nothing to do.
// With `deterministic`, algorithm and protocol are pinned (NCCL_ALGO = Ring, NCCL_PROTO = Simple, unless the user set
// them), and share() gives nothing: how NCCL cuts an array over its channels, and so the order of a sum, may depend on
// whether it is registered. Without, share() gives memory registered with NCCL.
// No start waits for ever: NCCL's communicator is made within timeout_s, or what the rank waited for is said
// (nccl_connection.hpp). A thread looks for asynchronous errors, and for collectives that do not come to their end in
// timeout_s. It aborts NCCL, so that nothing waits any more; the next call of any kind throws. Bits are those of NCCL's
// order of addition, whatever is sharded.
#pragma once
#include <memory>
#include <string>
#include <vector>

#include <kozero/core/ledger.hpp>
#include <kozero/dist/communicator.hpp>
#include <kozero/dist/communicator_options.hpp>

namespace kozero::dist {

/// Why these ranks cannot use NCCL: equal on all ranks; empty where they can. `mpi_comm` is an `MPI_Comm*`. Collective.
std::string nccl_obstacle(const void* mpi_comm);

/// Collective over `mpi_comm`, an `MPI_Comm*`, whose ranks have no obstacle.
/// Books what NCCL took of the GPU's memory meanwhile.
std::unique_ptr<Communicator> make_nccl_communicator(const void* mpi_comm, MemoryLedger& ledger,
                                                     const CommunicatorOptions& options);

/// Where a rank computes: its node, and the GPU as core's device_name() calls it.
struct RankDevice {
  std::string node;
  std::string gpu;
};

/// Which two ranks have one GPU, in words; empty where none have. `devices` in rank order.
std::string shared_gpu(const std::vector<RankDevice>& devices);

}  // namespace kozero::dist
