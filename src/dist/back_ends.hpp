// SPDX-FileCopyrightText: The KoZeRO authors
// SPDX-License-Identifier: Apache-2.0
// back_ends.hpp: the back ends with several ranks: mpi, shm, nccl, each with its construction, memory and requirements.
//   mpi   point-to-point messages, between any nodes        shm   shared memory, on one node
//   nccl  GPUs, one a rank, on a stream of their own
// mpi and shm add in rank order and give the same bits. <name>_communicator.cpp defines each; a further back end is a
// declaration here, a file of its own, and a row in make_communicator.cpp.
#pragma once
#include <memory>
#include <string>
#include <vector>

#include <kozero/core/ledger.hpp>
#include <kozero/dist/communicator.hpp>

namespace kozero::dist {

// Collectives over point-to-point messages, between any nodes.
//   reduce_scatter: rank p's shard, chunk by chunk, is sent to p by every other rank and added there in rank order
//   all_gather: each shard goes straight from its owner's memory into the others' full arrays
// A gather is under way from its start to its wait; a reduce-scatter, which needs the buffers, is done in its start.
// MPI's own reductions are not used: they do not add in rank order. Chunks are received into two buffers of
// chunk_bytes in turn, so that one is filled while the other is added. Pointers are host memory.

/// Collective over `mpi_comm`, an `MPI_Comm*`.
std::unique_ptr<Communicator> make_mpi_communicator(const void* mpi_comm, MemoryLedger& ledger,
                                                    const CommunicatorOptions& options);

/// What a rank of `size` books.
void book_mpi_buffers(int size, MemoryLedger& ledger, const CommunicatorOptions& options);

// The same over several nodes with equally many ranks, numbered node by node, for arrays from share(), which lie in
// shared memory of each node. All others go pairwise, and where the nodes are unlike, all arrays.
//   reduce_scatter: one partial sum passes through the nodes in turn (chain_reduction.hpp) where the cost model
//                   (node_layout.hpp) says that this is faster than pairwise messages; the bits are the same
//   all_gather: each shard goes once to each node, into the full array of the rank with the owner's index there, and
//               that rank's peers copy it from there
// Progress is made in starts and waits only: no thread competes with the training's for a core. Other nodes may
// wait for a rank that computes, but gathers and sums of several units are under way meanwhile.

/// What a rank books beside mpi's buffers.
void book_node_buffers(MemoryLedger& ledger, const CommunicatorOptions& options);

/// `pairwise` itself on one node. Collective over `mpi_comm`, an `MPI_Comm*`.
std::unique_ptr<Communicator> over_nodes(std::unique_ptr<Communicator> pairwise, const void* mpi_comm,
                                         MemoryLedger& ledger, const CommunicatorOptions& options);

// Collectives through shared memory, for ranks of one node.
// An array from share() lies in shared memory, and the peers read it where it lies:
//   start: post where it lies  ->  wait: until all have posted, add or copy what is mine, say that it is read
//   wait_until_reusable: until all have read
// Any other array is copied through windows, two buffers of chunk_bytes a rank, used in turn, all of it in wait:
//   phase k:  fill buffer k mod 2  ->  publish k  ->  wait until all have published k  ->  read the peers' buffers
// Two buffers are enough: who publishes phase k+1 has read all of phase k, and nobody passes phase k+1 before all have
// published it; so when a rank fills a buffer again, in phase k+2, no one reads it any more.
// Sums are in rank order, whichever way: the same bits as mpi. Where /dev/shm has no room for an array, share() has
// none and rank 0 says so once. A wait spins briefly, then sleeps, so that more ranks than cores still move.
// Host memory.

/// Why these ranks cannot use shared memory (several nodes, too little space): equal on all ranks; empty where they
/// can. Collective over `mpi_comm`, an `MPI_Comm*`.
std::string shm_unavailable_reason(const void* mpi_comm, const CommunicatorOptions& options);

/// Collective over `mpi_comm`, an `MPI_Comm*`, whose ranks have no unavailable_reason.
std::unique_ptr<Communicator> make_shm_communicator(const void* mpi_comm, MemoryLedger& ledger,
                                                    const CommunicatorOptions& options);

/// What a rank of `size` books.
void book_shm_window(int size, MemoryLedger& ledger, const CommunicatorOptions& options);

// Collectives between GPUs, one a rank, by NCCL on a stream of their own.
//   start:   compute stream --given--> communication stream: the collective, --done-->
//   wait:    --done--> compute stream
// So a collective reads what kernels before its start wrote and writes what they had read, kernels after its wait see
// the result, and the host waits for neither, only until NCCL has put the collective on its stream. Equal shards are
// one ncclReduceScatter or ncclAllGather; uneven ones a group of ncclReduce or ncclBroadcast, one a shard that is not
// empty. What is passed is free after wait, so that wait_until_reusable has nothing to do.
// With `deterministic`, algorithm and protocol are pinned (NCCL_ALGO = Ring, NCCL_PROTO = Simple, unless the user set
// them), and share() gives nothing: how NCCL cuts an array over its channels, and so the order of a sum, may depend on
// whether it is registered. Without, share() gives memory registered with NCCL.
// No start waits for ever: NCCL's communicator is made within timeout_s, or what the rank waited for is said
// (nccl_connection.hpp). A thread looks for asynchronous errors, and for collectives that do not come to their end in
// timeout_s. It aborts NCCL, so that nothing waits any more; the next call of any kind throws. Bits are those of NCCL's
// order of addition, whatever is sharded. With `exact`, shards travel as messages of one group a chunk, and a kernel on
// the same stream adds them in rank order: the bits of mpi and shm, for S(n-1)/n bytes sent, as before, and a pass over
// memory more. `exact_bytes` bound what has been received and not added.

/// Why these ranks cannot use NCCL: equal on all ranks; empty where they can. `mpi_comm` is an `MPI_Comm*`. Collective.
std::string nccl_unavailable_reason(const void* mpi_comm);

/// Where comm.exact receives addends; of extent 0 without.
Vector<float> received_addends(int size, MemoryLedger& ledger, const CommunicatorOptions& options);

/// Collective over `mpi_comm`, an `MPI_Comm*`, whose ranks have no unavailable_reason.
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
