// SPDX-FileCopyrightText: The KoZeRO authors
// SPDX-License-Identifier: Apache-2.0
// rotation.hpp: selects some of a test's many combinations by a seed, so that runs on different days cover all of them.
//   Rotation rotation("stages", 3);   for (...) { if (!rotation.takes()) continue; ... }   // a third of them
// The seed is KOZERO_TEST_SEED, or the hours since 1970. KOZERO_TEST_ALL=1 takes every combination.
#pragma once
#include <mpi.h>
#include <chrono>
#include <cstdint>
#include <cstdlib>
#include <functional>
#include <iostream>
#include <string_view>

namespace kozero::test {

class Rotation {
 public:
  /// Selects one of `share` combinations. Collective over all ranks, which agree on the seed; rank 0 prints it.
  Rotation(const char* name, std::uint64_t share) : share_(std::getenv("KOZERO_TEST_ALL") != nullptr ? 1 : share) {
    const char* const given = std::getenv("KOZERO_TEST_SEED");
    using Hours = std::chrono::hours;
    std::uint64_t seed =
        given != nullptr
            ? std::strtoull(given, nullptr, 10)
            : static_cast<std::uint64_t>(
                  std::chrono::duration_cast<Hours>(std::chrono::system_clock::now().time_since_epoch()).count());
    MPI_Bcast(&seed, 1, MPI_UINT64_T, 0, MPI_COMM_WORLD);
    // Runs at the same hour of different days select different parts, and so do the rotations of one run.
    next_ = (seed + seed / 24 + std::hash<std::string_view>()(name) % share_) % share_;
    int rank = 0;
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    if (rank > 0 || share_ == 1) return;
    std::cout << name << ": 1 combination of " << share_ << ", by KOZERO_TEST_SEED=" << seed
              << "; all of them: KOZERO_TEST_ALL=1\n";
  }

  /// Whether the test runs the next combination.
  bool takes() { return next_++ % share_ == 0; }

 private:
  std::uint64_t share_;
  std::uint64_t next_ = 0;
};

}  // namespace kozero::test
