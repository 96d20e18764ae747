// SPDX-FileCopyrightText: The KoZeRO authors
// SPDX-License-Identifier: Apache-2.0
// self_communicator.hpp: the communicator of one rank alone. Both collectives are a copy; in place, nothing.
// Reads and writes device memory, and makes no MPI call.
#pragma once
#include <memory>

#include <kozero/dist/communicator.hpp>

namespace kozero::dist {

std::unique_ptr<Communicator> make_self_communicator();

}  // namespace kozero::dist
