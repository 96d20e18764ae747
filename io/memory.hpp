// SPDX-FileCopyrightText: The KoZeRO authors
// SPDX-License-Identifier: Apache-2.0
// memory.hpp: physical memory, as the kernel counts it: what this process holds, and what can still be had.
#pragma once
#include <cstdint>

namespace kozero::io {

struct ResidentMemory {
  std::int64_t current = 0;  ///< bytes; 0 where the system does not tell
  std::int64_t peak = 0;     ///< the largest since the process began
};

ResidentMemory resident_memory();

/// How much of the current bytes is other processes' share of pages that several have mapped: what is left of all
/// processes adds up to what they take together. Walks the page tables: milliseconds. 0 where the system does not tell.
std::int64_t shares_of_others();

/// Bytes that this node can still give to new allocations of all its processes, within the control group's limit
/// where one is set; 0 where the system does not tell.
std::int64_t available_memory();

}  // namespace kozero::io
