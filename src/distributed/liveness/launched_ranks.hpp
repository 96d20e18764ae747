// SPDX-FileCopyrightText: The KoZeRO authors
// SPDX-License-Identifier: Apache-2.0
// launched_ranks.hpp: this node's other ranks as /proc shows them, for the time before MPI_Init returns.
//   show_arrival(); MPI_Init_thread(...);     from now on others see that this process reached MPI_Init
//   ranks_not_arrived()                       "rank 1 (process 123 of this node, which is stopped)"
// A launcher starts the ranks of a node as its children and tells each one its rank in a variable. A rank shows that it
// reached MPI_Init by the name of its watchdog's thread, so nothing is left behind if it is killed.
#pragma once
#include <string>

namespace kozero::distributed {

void show_arrival();

/// The ranks of this node that are stopped or have not come to MPI_Init, separated by commas; "" if there are none, or
/// if the launcher did not start this process itself. Reads /proc.
std::string ranks_not_arrived();

}  // namespace kozero::distributed
