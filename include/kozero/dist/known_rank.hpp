// SPDX-FileCopyrightText: The KoZeRO authors
// SPDX-License-Identifier: Apache-2.0
// known_rank.hpp: for messages that may be due before MPI is up, or by a thread that must not call it.
#pragma once

namespace kozero::dist {

/// This process's rank: MPI's, before it is up the one that the launcher's environment names, else 0.
int known_rank();

}  // namespace kozero::dist
