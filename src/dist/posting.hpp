// SPDX-FileCopyrightText: The KoZeRO authors
// SPDX-License-Identifier: Apache-2.0
// posting.hpp: what one rank tells the others of one collective, in shared memory.
//   post: `place` is where what it gives lies      read: it has read what the others gave
// Postings are a ring of CommunicatorOptions::under_way: a posting is used again once all ranks have read it.
#pragma once
#include <kozero/dist/phase_counter.hpp>

#include "shared_arrays.hpp"

namespace kozero::dist {

/// Counters are `ticket + 1`; those that others wait on lie in lines of their own.
struct alignas(64) Posting {
  PhaseCounter posted;
  SharedArrays::Place place;
  alignas(64) PhaseCounter read;
};

}  // namespace kozero::dist
