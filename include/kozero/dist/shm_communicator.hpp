// SPDX-FileCopyrightText: The KoZeRO authors
// SPDX-License-Identifier: Apache-2.0
// shm_communicator.hpp: collectives through shared memory, for ranks of one node.
// An array from share() lies in shared memory, and the peers read it where it lies:
//   start: post where it lies  ->  finish: wait until all have posted, add or copy what is mine, say that it is read
//   reclaim: wait until all have read
// Any other array is copied through windows, two buffers of chunk_bytes a rank, used in turn, all of it in finish:
//   phase k:  fill buffer k mod 2  ->  publish k  ->  wait until all have published k  ->  read the peers' buffers
// Two buffers are enough: who publishes phase k+1 has read all of phase k, and nobody passes phase k+1 before all have
// published it; so when a rank fills a buffer again, in phase k+2, no one reads it any more.
// Sums are in rank order, whichever way: the same bits as mpi. Where /dev/shm has no room for an array, share() has
// none and rank 0 says so once. A wait spins briefly, then sleeps, so that more ranks than cores still move.
// Host memory.
#pragma once
#include <memory>
#include <string>

#include <kozero/core/ledger.hpp>
#include <kozero/dist/communicator.hpp>
#include <kozero/dist/communicator_options.hpp>

namespace kozero::dist {

/// Why these ranks cannot use shared memory (several nodes, too little space): equal on all ranks; empty where they
/// can. Collective over `mpi_comm`, an `MPI_Comm*`.
std::string shm_obstacle(const void* mpi_comm, const CommunicatorOptions& options);

/// Collective over `mpi_comm`, an `MPI_Comm*`, whose ranks have no obstacle.
std::unique_ptr<Communicator> make_shm_communicator(const void* mpi_comm, MemoryLedger& ledger,
                                                    const CommunicatorOptions& options);

/// What a rank of `size` books.
void book_shm_window(int size, MemoryLedger& ledger, const CommunicatorOptions& options);

}  // namespace kozero::dist
