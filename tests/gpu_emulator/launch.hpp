// SPDX-FileCopyrightText: The KoZeRO authors
// SPDX-License-Identifier: Apache-2.0
// launch.hpp: a grid of blocks, executed one block after the other on one thread of the host.
#pragma once
#include <array>
#include <string>
#include <vector>

#include "code.hpp"

namespace kozero::gpu_emulator {

struct Launch {
  const Code* code = nullptr;
  std::string label;  ///< the program's name of the kernel
  std::array<std::uint32_t, 3> grid = {1, 1, 1}, block = {1, 1, 1};
  std::uint32_t dynamic_shared = 0;
  std::vector<std::byte> parameters;

  /// This launch's first block; blocks are numbered over the whole process.
  std::uint32_t first_number = 0;

  /// The accesses that a block published by a fence and an atomic operation: all before a barrier, or one thread's.
  struct Release {
    std::uint32_t before = 0, thread = 0;
    std::uint64_t order = 0;
  };
  mutable std::vector<Release> releases;  ///< by block
  mutable std::uint64_t last_order = 0;
};

/// Executes all blocks; called by one thread at a time.
void run(Launch& launch);

}  // namespace kozero::gpu_emulator
