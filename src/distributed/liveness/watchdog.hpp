// SPDX-FileCopyrightText: The KoZeRO authors
// SPDX-License-Identifier: Apache-2.0
// watchdog.hpp: this process's position for other ranks, and a thread that ends the process if an MPI call does not
// return.
//   whereabouts().started({...})         records in core's events() that a collective was started
//   const Whereabouts::Wait wait(role)   marks that this thread waits for other ranks
//   whereabouts().beat()                 returns the wait, the newest collective and core's position() as one message
//   { const BlockingCall call("MPI_Finalize"); MPI_Finalize(); }
// A call times out after comm.timeout_s (wait_clock.hpp). With a heartbeat whose thread gets into MPI, the heartbeat
// decides instead. On a timeout the watchdog reports one line by report_failure and ends the process with the status of
// a lost rank, without an MPI call; the launcher, or the other ranks' watchdogs, end the other processes. Before MPI is
// up, the rank is read from the launcher's variables.
#pragma once
#include <array>
#include <atomic>
#include <cstdint>
#include <string>

#include <kozero/core/events.hpp>
#include <kozero/distributed/communicator.hpp>
#include <kozero/distributed/environment.hpp>
#include <kozero/distributed/wait_clock.hpp>

namespace kozero::distributed {

/// A rank's message to the others, sent a few times per second as bytes.
struct Beat {
  std::uint64_t number = 0;                            ///< of this rank's beats
  std::array<std::uint64_t, kRoles> waits_begun = {};  ///< begun and ended waits, both counted
  std::array<std::uint8_t, kRoles> waits = {};
  std::array<std::uint8_t, kRoles> stalled = {};  ///< set by rank 0: all ranks wait for each other
  std::uint8_t ends = 0;                          ///< the rank only has to end MPI
  std::uint8_t all_end = 0;                       ///< set by rank 0: all ranks do
  std::int32_t rank = 0;                          ///< of the job
  std::array<char, 19> phase = {};
  std::array<char, 24> collective = {};  ///< newest collective of Role::training
  std::array<char, 16> communicator = {};
  std::uint64_t sequence = 0;
  std::int64_t bytes = 0;
  std::int64_t step = 0;
  std::int64_t unit = -1;
  double unheard_s = 0.0;  ///< time since rank 0 received a beat of the rank
};

/// "step 12, forward_backward, unit 3, waiting in all_gather 812 of shm (1048576 bytes)"
std::string position_text(const Beat& beat);

/// The position of this process, for the ranks that wait for it and for the report of a wait that timed out. Threads
/// of different roles may call concurrently.
class Whereabouts {
 public:
  /// Records the start of a collective, or of an MPI call that blocks.
  void started(Event event);
  [[nodiscard]] Beat beat() const;
  /// The newest `count` collectives, oldest first, each "812 all_gather of shm (...)", separated by semicolons.
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
  std::array<std::atomic<std::uint8_t>, kRoles> waits_ = {};
  std::array<std::atomic<std::uint64_t>, kRoles> waits_begun_ = {};
};

/// This process's record.
Whereabouts& whereabouts();

/// comm.timeout_s: the timeout of all waits of this process without their own timeout. 600 until set.
double comm_timeout();
void set_comm_timeout(double seconds);

/// A thread that ends the process if an MPI call does not return, since such a call cannot be interrupted, or if the
/// launcher's process on this node has ended. Runs from construction to destruction. At most one per process; without
/// one, BlockingCall has no timeout.
class Watchdog {
 public:
  Watchdog();
  ~Watchdog();
  Watchdog(const Watchdog&) = delete;
  Watchdog& operator=(const Watchdog&) = delete;
};

/// Sets the thread's name in /proc; at most 15 letters. No effect without a watchdog.
void name_watchdog(const char* name);

/// The call that starts MPI. Until it returns, ranks cannot name each other.
inline constexpr const char* kMpiStart = "MPI_Init_thread";

/// Guards an MPI call that returns once other ranks call it too. For the main thread only.
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

}  // namespace kozero::distributed
