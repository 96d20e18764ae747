// SPDX-FileCopyrightText: The KoZeRO authors
// SPDX-License-Identifier: Apache-2.0
// watchdog.hpp: what this process is doing, and a thread that ends it where a call of MPI does not return.
//   whereabouts().started({...})         records a collective in a ring of the newest ones
//   { const BlockingCall call("MPI_Finalize"); MPI_Finalize(); }
// The watchdog reports one line and ends the process after comm.timeout_s, without a call of MPI.
#pragma once
#include <array>
#include <atomic>
#include <cstdint>
#include <mutex>
#include <string>

#include <kozero/dist/communicator.hpp>
#include <kozero/dist/environment.hpp>
#include <kozero/dist/wait_clock.hpp>

namespace kozero::dist {

// Where this process is, for the ranks that wait for it and for the report of a wait in vain.
//   whereabouts().started({...})         a collective was started: it enters a ring of the newest kTraced
//   const Whereabouts::Wait wait(role)   this thread waits for other ranks
//   whereabouts().beat()                 both, and the phase, step and unit of core's position(), as one message
// Nothing is allocated. Threads of different roles call at once.

/// A collective as a rank started it, or a call of MPI that blocks. Names are string literals.
struct Traced {
  Role role = Role::training;
  const char* collective = "";    ///< "all_gather", "MPI_Comm_dup"
  const char* communicator = "";  ///< "shm"
  std::uint64_t sequence = 0;     ///< of that communicator's collectives, from 1: equal on all ranks. 0: of MPI's
  std::int64_t bytes = 0;         ///< of the whole array, or of the values of one rank
  const char* phase = "";
  std::int64_t step = 0;
  int unit = -1;
};

/// What one rank tells the others a few times a second. Travels as bytes.
struct Beat {
  std::uint64_t number = 0;                            ///< of this rank's beats
  std::array<std::uint64_t, kRoles> waits_begun = {};  ///< and ended, both counted
  std::array<std::uint8_t, kRoles> waits = {};
  std::array<std::uint8_t, kRoles> stalled = {};  ///< rank 0's verdict: all wait for one another in vain
  std::uint8_t ends = 0;                          ///< it has nothing left to do but to end MPI
  std::array<char, 19> phase = {};
  std::array<char, 24> collective = {};  ///< the newest of Role::training
  std::array<char, 16> communicator = {};
  std::uint64_t sequence = 0;
  std::int64_t bytes = 0;
  std::int64_t step = 0;
  std::int64_t unit = -1;
  double unheard_s = 0.0;  ///< how long rank 0 has heard nothing of it
};

/// "step 12, forward_backward, unit 3, waiting in all_gather 812 of shm (1048576 bytes)"
std::string position_text(const Beat& beat);

class Whereabouts {
 public:
  static constexpr std::size_t kTraced = 64;

  /// Phase, step and unit are filled in here.
  void started(Traced collective);
  [[nodiscard]] Beat beat() const;
  /// The newest `count` collectives, the oldest of them first, each "812 all_gather of shm (...)", with commas between.
  [[nodiscard]] std::string newest(std::size_t count) const;
  [[nodiscard]] bool is_waiting(Role role) const { return waits_[static_cast<std::size_t>(role)] != 0; }

  class Wait {
   public:
    explicit Wait(Role role);
    ~Wait();
    Wait(const Wait&) = delete;
    Wait& operator=(const Wait&) = delete;

   private:
    std::size_t role_;
  };

 private:
  mutable std::mutex mutex_;
  std::array<Traced, kTraced> ring_;
  std::uint64_t num_started_ = 0;
  Traced newest_of_training_;
  std::array<std::atomic<std::uint8_t>, kRoles> waits_ = {};
  std::array<std::atomic<std::uint64_t>, kRoles> waits_begun_ = {};
};

/// This process's.
Whereabouts& whereabouts();

// A thread that ends the process where a call of MPI does not return, since such a call cannot be left.
//   { const BlockingCall call("MPI_Finalize"); MPI_Finalize(); }
// A call is in vain after comm.timeout_s (wait_clock.hpp); with a heartbeat, not before that says so, as long as its
// thread is let into MPI. Then the watchdog reports one line by report_failure and ends the process with the status of
// a lost rank, without a call of MPI: the launcher, or the other ranks' watchdogs, end the others. Before MPI is up the
// rank is what the launcher's variables say.

/// comm.timeout_s, of all waits of this process that have no time of their own. 600 until it is set.
double comm_timeout();
void set_comm_timeout(double seconds);

/// The thread, from construction to destruction. One a process; without it BlockingCall does nothing.
class Watchdog {
 public:
  Watchdog();
  ~Watchdog();
  Watchdog(const Watchdog&) = delete;
  Watchdog& operator=(const Watchdog&) = delete;
};

/// Around a call of MPI that returns when other ranks call it too. For the main thread.
class BlockingCall {
 public:
  /// `name`: a string literal.
  explicit BlockingCall(const char* name);
  ~BlockingCall();
  BlockingCall(const BlockingCall&) = delete;
  BlockingCall& operator=(const BlockingCall&) = delete;

 private:
  Whereabouts::Wait wait_{Role::training};
};

}  // namespace kozero::dist
