// SPDX-FileCopyrightText: The KoZeRO authors
// SPDX-License-Identifier: Apache-2.0
// thread_mpi.hpp: MPI for ranks that are threads of one process, so that ThreadSanitizer sees what they share.
// ThreadSanitizer learns of exactly the orders that MPI promises: a message is read after its send and written before
// its receive ends, a collective ends after those that it depends on began. The locks in here are hidden from it, since
// their order would hide races. A message's bytes are moved by the sender or by the receiver, whom chance chooses, as
// late as both wait for it. Calls sleep at random.
#pragma once
#include <mpi.h>

#include <chrono>
#include <cstdint>
#include <functional>

namespace kozero::test {

/// Runs `body(world)` as `num_ranks` threads of a world of their own, and joins them. Delays follow `seed`.
void run_ranks(int num_ranks, std::uint64_t seed, const std::function<void(MPI_Comm world)>& body);

/// Calls of MPI by this rank, which move what came late, for so long.
void make_progress_for(std::chrono::milliseconds time);

/// Sleeps for at most some hundred microseconds, or not at all.
void sleep_at_random();

/// Between the two, locks and atomics of this thread make no order that ThreadSanitizer knows of. They nest.
void hide_order();
void show_order();

/// What happens in its scope makes no order, and no access, that ThreadSanitizer knows of.
class Unseen {
 public:
  Unseen();
  ~Unseen();
  Unseen(const Unseen&) = delete;
  Unseen& operator=(const Unseen&) = delete;
};

}  // namespace kozero::test
