// SPDX-FileCopyrightText: The KoZeRO authors
// SPDX-License-Identifier: Apache-2.0
// mpi_communicator.hpp: collectives over point-to-point messages, between any nodes.
//   reduce_scatter: rank p's slice, piece by piece, is sent to p by every other rank and added there in rank order
//   all_gather: each slice goes straight from its owner's memory into the others' full arrays
// A gather is under way from its start to its finish; a reduce-scatter, which needs the buffers, is done in its start.
// MPI's own reductions are not used: they do not add in rank order. Pieces are received into two buffers of
// chunk_bytes in turn, so that one is filled while the other is added. Pointers are host memory.
#pragma once
#include <memory>

#include <kozero/core/ledger.hpp>
#include <kozero/dist/communicator.hpp>
#include <kozero/dist/communicator_options.hpp>

namespace kozero::dist {

/// Collective over `mpi_comm`, an `MPI_Comm*`.
std::unique_ptr<Communicator> make_mpi_communicator(const void* mpi_comm, MemoryLedger& ledger,
                                                    const CommunicatorOptions& options);

/// What a rank of `size` books.
void book_mpi_buffers(int size, MemoryLedger& ledger, const CommunicatorOptions& options);

}  // namespace kozero::dist
