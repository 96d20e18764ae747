// SPDX-FileCopyrightText: The KoZeRO authors
// SPDX-License-Identifier: Apache-2.0
// node_layout.hpp: placement of ranks on nodes. The header includes no Kokkos.
#pragma once
#include <kozero/distributed/collective_time.hpp>
#include <kozero/distributed/communicator.hpp>

namespace kozero::distributed {

/// The layout of `ranks`, equal on all ranks. Collective. If `simulated` is not 0, each node is that many consecutive
/// ranks.
NodeLayout node_layout(const Ranks& ranks, int simulated);

}  // namespace kozero::distributed
