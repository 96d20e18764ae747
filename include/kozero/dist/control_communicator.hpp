// SPDX-FileCopyrightText: The KoZeRO authors
// SPDX-License-Identifier: Apache-2.0
// control_communicator.hpp: control traffic alone, for agreements about work of any length.
// A duplicate of the ranks' MPI communicator, so that no message meets the trainer's, and no buffers. A waiting rank
// sleeps between two looks instead of taking the trainer's core. Data collectives throw Error(internal).
// Where the ranks are all of the job's and Environment::thread_multiple(), a wait goes on as long as they live,
// whatever they do meanwhile, and ends in Error(communication) once a rank was silent for comm.timeout_s, or all ranks
// wait for one another that long. Other waits end after `timeout_s`, or io_timeout_s where that is longer.
#pragma once
#include <memory>

#include <kozero/dist/communicator.hpp>
#include <kozero/dist/communicator_options.hpp>
#include <kozero/dist/role.hpp>

namespace kozero::dist {

struct ControlUse {
  Role role = Role::training;  ///< which thread waits
  /// > 0: a wait for ranks that live ends after so many seconds too, in Error(write): what they do is writing.
  double io_timeout_s = 0.0;
  bool checks_calls = kChecksCalls;
};

/// Collective over `mpi_comm` (an `MPI_Comm*`); of one rank it makes no MPI call later. Several ranks need
/// Environment::thread_multiple() where another thread than the trainer's uses it.
std::unique_ptr<Communicator> make_control_communicator(const void* mpi_comm, double timeout_s, ControlUse use = {});

/// Whether this process's thread of that role waits for other ranks now.
bool is_waiting(Role role);

/// For waits outside collectives: throws Error(communication) naming the rank once a rank was silent for
/// comm.timeout_s. `what` names the awaited event, `waited_s` the seconds so far. Does nothing without a heartbeat.
void require_live_ranks(const char* what, double waited_s);

}  // namespace kozero::dist
