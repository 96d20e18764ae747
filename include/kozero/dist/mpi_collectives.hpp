// SPDX-FileCopyrightText: The KoZeRO authors
// SPDX-License-Identifier: Apache-2.0
// mpi_collectives.hpp: MPI's own reduce-scatter and all-gather, to be measured against.
//   reduce_scatter: MPI_Reduce_scatter_block      all_gather: MPI_Allgather
// No back end of training: MPI does not add in rank order. Slices must be equal, and no larger than MPI can count in
// int; else Error(internal). Pointers are host memory.
#pragma once
#include <memory>

#include <kozero/dist/communicator.hpp>

namespace kozero::dist {

/// Collective over `mpi_comm`, an `MPI_Comm*`.
std::unique_ptr<Communicator> make_mpi_collectives(const void* mpi_comm);

}  // namespace kozero::dist
