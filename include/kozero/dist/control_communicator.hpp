// SPDX-FileCopyrightText: The KoZeRO authors
// SPDX-License-Identifier: Apache-2.0
// control_communicator.hpp: control traffic alone, for a thread that works beside the training.
// A duplicate of the ranks' MPI communicator, so that no message meets the trainer's, and no buffers. A waiting rank
// sleeps between two looks instead of taking the trainer's core. Data collectives throw Error(internal).
#pragma once
#include <memory>

#include <kozero/dist/communicator.hpp>

namespace kozero::dist {

/// Collective over `mpi_comm` (an `MPI_Comm*`); of one rank it makes no MPI call later. Several ranks need
/// Environment::thread_multiple() where another thread than the trainer's uses it.
std::unique_ptr<Communicator> make_control_communicator(const void* mpi_comm, double timeout_s);

}  // namespace kozero::dist
