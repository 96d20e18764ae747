// SPDX-FileCopyrightText: The KoZeRO authors
// SPDX-License-Identifier: Apache-2.0
// launched_ranks.hpp: this node's other ranks as /proc shows them, for the time before MPI_Init returns.
//   show_arrival(); MPI_Init_thread(...);     from now on others see that this process reached MPI_Init
//   ranks_not_arrived()                       "rank 1 (process 123 of this node, which is stopped)"
// A launcher starts the ranks of a node as its children and tells each one its rank in a variable. A rank shows that it
// reached MPI_Init by the name of its watchdog's thread, so nothing is left behind if it is killed.
//   remember_launcher(); ... launcher_is_lost()    whether the process that started this rank has ended since
#pragma once
#include <string>

namespace kozero::distributed {

void show_arrival();

/// The ranks of this node that are stopped or have not come to MPI_Init, separated by commas; "" if there are none, or
/// if the launcher did not start this process itself. Reads /proc.
std::string ranks_not_arrived();

/// Called before MPI_Init. Does nothing for a process that no launcher started.
void remember_launcher();

/// Whether this rank's parent has ended: a rank cannot end MPI without the launcher's process on its node, and the
/// launcher does not end the job. PR_SET_PDEATHSIG would tell of the parent's thread and is lost with a change of user.
bool launcher_is_lost();

}  // namespace kozero::distributed
