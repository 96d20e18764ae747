// SPDX-FileCopyrightText: The KoZeRO authors
// SPDX-License-Identifier: Apache-2.0
// thread_mpi.hpp: MPI for ranks that are threads of one process, so that ThreadSanitizer sees the memory that they
// share. ThreadSanitizer is told exactly the orders that MPI guarantees: a message is read after its send and written
// before its receive ends, and a collective ends after the calls on which it depends began. The locks in here are
// hidden from it, since their order would hide races. A message's bytes are moved by the sender or the receiver, chosen
// at random, and only when both wait for it. Calls sleep at random.
#pragma once
#include <mpi.h>

#include <chrono>
#include <cstdint>
#include <functional>

namespace kozero::test {

/// Runs `body(world)` on `num_ranks` threads with a world of their own, and joins them. Delays follow from `seed`.
void run_ranks(int num_ranks, std::uint64_t seed, const std::function<void(MPI_Comm world)>& body);

/// Calls MPI on this rank for `seconds`, which moves late messages.
void make_progress_for(std::chrono::milliseconds time);

/// Sleeps for at most some hundred microseconds, or not at all.
void sleep_at_random();

/// Between these two calls ThreadSanitizer ignores the orders of this thread's locks and atomics. The calls nest.
void hide_order();
void show_order();

/// In its scope ThreadSanitizer ignores this thread's orders and accesses.
class Unseen {
 public:
  Unseen();
  ~Unseen();
  Unseen(const Unseen&) = delete;
  Unseen& operator=(const Unseen&) = delete;
};

}  // namespace kozero::test
