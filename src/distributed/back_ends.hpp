// SPDX-FileCopyrightText: The KoZeRO authors
// SPDX-License-Identifier: Apache-2.0
// back_ends.hpp: the back ends for several ranks: construction, memory and requirements of each.
//   mpi   point-to-point messages, between any nodes        shm   shared memory, on one node
//   nccl  GPUs, one per rank, on a separate stream           ring  messages between neighbors, between any nodes
// mpi and shm add in rank order and give the same bits. <name>_communicator.cpp defines each. A new back end needs a
// declaration here, a source file, and a row in make_communicator.cpp, which adds the decorators.
#pragma once
#include <memory>
#include <string>
#include <vector>

#include <kozero/core/ledger.hpp>
#include <kozero/distributed/communicator.hpp>

namespace kozero::distributed {

/// Collectives over point-to-point messages, between any nodes.
///   reduce_scatter: every other rank sends rank p's shard to p, chunk by chunk, and p adds the chunks in rank order
///   all_gather: each rank sends its shard straight from its memory into the full arrays of the others
/// A gather is under way from its start to its wait. A reduce-scatter needs the buffers and completes in its start.
/// MPI's own reductions are not used, since they do not add in rank order. Chunks are received into two alternating
/// buffers of chunk_bytes: one is filled while the other is added. Pointers are host memory.
/// Collective over `ranks`.
std::unique_ptr<Communicator> make_mpi_communicator(const Ranks& ranks, MemoryLedger& ledger,
                                                    const CommunicatorOptions& options);

/// Books the buffers of one of `size` ranks.
void book_mpi_buffers(int size, MemoryLedger& ledger, const CommunicatorOptions& options);

/// mpi over several nodes with equal numbers of ranks, numbered node by node, for arrays from share(), which lie in
/// shared memory of each node. Other arrays are exchanged pairwise, and all arrays if the nodes have unequal numbers.
///   reduce_scatter: a partial sum passes through the nodes in order (chain_reduction.hpp) if the cost model
///                   (collective_time.hpp) estimates less time than for pairwise messages; the bits are the same
///   all_gather: each shard is sent once to each node, into the full array of the rank with the owner's index there;
///               that rank's peers copy the shard from its array
/// Progress is made in starts and waits only, so that no thread competes with the training threads for a core. Other
/// nodes may wait for a rank that computes, but gathers and sums of several units are under way meanwhile.
/// Books a rank's buffers in addition to those of book_mpi_buffers.
void book_node_buffers(MemoryLedger& ledger, const CommunicatorOptions& options);

/// Returns `pairwise` itself on one node. Collective over `ranks`.
std::unique_ptr<Communicator> over_nodes(std::unique_ptr<Communicator> pairwise, const Ranks& ranks,
                                         MemoryLedger& ledger, const CommunicatorOptions& options);

/// Why these ranks cannot use shared memory (several nodes, too little space); "" if they can. The same text on all
/// ranks. Collective over `ranks`.
std::string shm_unavailable_reason(const Ranks& ranks, const CommunicatorOptions& options);

/// Collectives through shared memory, for ranks of one node.
/// An array from share() lies in shared memory, and the peers read it in place:
///   start: post the location  ->  wait: wait until all have posted, add or copy this rank's part, publish `read`
///   wait_until_reusable: wait until all have published `read`
/// Any other array is copied through windows, two alternating buffers of chunk_bytes per rank, entirely in wait:
///   phase k:  fill buffer k mod 2  ->  publish k  ->  wait until all have published k  ->  read the peers' buffers
/// Two buffers suffice: a rank that publishes phase k+1 has read all of phase k, and no rank passes phase k+1 before
/// all have published it. So when a rank fills a buffer again, in phase k+2, no rank still reads it. Both algorithms
/// add in rank order and give the same bits as mpi. If /dev/shm has no room for an array, share() returns none and rank
/// 0 reports it once. A wait spins briefly, then sleeps, so that more ranks than cores progress. Pointers are host
/// memory. Collective over `ranks`, which have no unavailable_reason.
std::unique_ptr<Communicator> make_shm_communicator(const Ranks& ranks, MemoryLedger& ledger,
                                                    const CommunicatorOptions& options);

/// Books the window of one of `size` ranks.
void book_shm_window(int size, MemoryLedger& ledger, const CommunicatorOptions& options);

/// Why these ranks cannot use NCCL; "" if they can. The same text on all ranks. Collective.
std::string nccl_unavailable_reason(const Ranks& ranks);

/// Receive buffer for the addends of comm.exact; extent 0 without comm.exact.
Vector<float> received_addends(int size, MemoryLedger& ledger, const CommunicatorOptions& options);

/// Collectives between GPUs, one per rank, by NCCL on a separate stream.
///   start:   compute stream --given--> communication stream: the collective, --done-->
///   wait:    --done--> compute stream
/// So a collective runs after the kernels before its start, and kernels after its wait see the result. The host waits
/// only until NCCL has put the collective on its stream. Equal shards use one ncclReduceScatter or ncclAllGather;
/// uneven shards use a group of ncclReduce or ncclBroadcast, one per shard that is not empty. Buffers are free after
/// wait, so wait_until_reusable does nothing. With `deterministic`, algorithm and protocol are pinned (NCCL_ALGO =
/// Ring, NCCL_PROTO = Simple, unless the user set them), and share() returns none: how NCCL cuts an array over its
/// channels, and so the order of a sum, may depend on whether the array is registered. Otherwise share() returns memory
/// registered with NCCL. No start waits for ever: NCCL's communicator is made within timeout_s, or an error names what
/// the rank waited for (nccl_connection.hpp). A thread watches for asynchronous errors and for collectives that exceed
/// timeout_s. The thread aborts NCCL, which ends all waits; the next call of any kind throws. The bits are those of
/// NCCL's order of addition, whatever is sharded. With `exact`, shards are exchanged as messages, one group per chunk,
/// and a kernel on the same stream adds them in rank order. This gives the bits of mpi and shm and still sends S(n-1)/n
/// bytes, but takes one more pass over memory. `exact_bytes` bounds the memory for addends received and not yet added.
/// Collective over `ranks`, which have no unavailable_reason. Books the GPU memory that NCCL allocates during the call.
std::unique_ptr<Communicator> make_nccl_communicator(const Ranks& ranks, MemoryLedger& ledger,
                                                     const CommunicatorOptions& options);

/// Collectives along a ring of point-to-point messages: rank r receives from r - 1 and sends to r + 1 (mod n).
///   reduce_scatter  the sum of shard p begins with rank p + 1's addend, passes through the ranks, each of which adds
///                   its own, and ends at p: ((x_{p+1} + x_{p+2}) + ...) + x_p. Only the default Fold is accepted
///   all_gather      shard p passes from p through all ranks to p - 1, received straight into the full arrays
/// Each rank sends S (n-1)/n bytes in n - 1 steps (Patarasuk and Yuan 2009, doi:10.1016/j.jpdc.2008.09.002). Shards are
/// cut into chunks, some of them under way at once, so that one chunk is added while others travel. With `exact`
/// sums pass through the ranks in order instead, 0, 1, ..., n - 1, and from there to the shard's owner
/// (nodes/chain_reduction.hpp with one rank per node): the bits are those of mpi, every Fold is accepted, and rank 0 to
/// n - 1 send S bytes. Collectives are under way from start to wait; progress is made in starts and waits. Pointers
/// are host memory. Collective over `ranks`.
std::unique_ptr<Communicator> make_ring_communicator(const Ranks& ranks, MemoryLedger& ledger,
                                                     const CommunicatorOptions& options);

/// Books a rank's buffers.
void book_ring_buffers(MemoryLedger& ledger, const CommunicatorOptions& options);

/// The node and GPU of a rank; `gpu` is core's device_name().
struct RankDevice {
  std::string node;
  std::string gpu;
};

/// Names two ranks that share a GPU; "" if no ranks do. `devices` in rank order.
std::string shared_gpu(const std::vector<RankDevice>& devices);

}  // namespace kozero::distributed
