// SPDX-FileCopyrightText: The KoZeRO authors
// SPDX-License-Identifier: Apache-2.0
// watchdog.hpp: a thread that ends the process where a call of MPI does not return, since such a call cannot be left.
//   { const BlockingCall call("MPI_Finalize"); MPI_Finalize(); }
// A call is in vain after comm.timeout_s (wait_clock.hpp); with a heartbeat, not before that says so, as long as its
// thread is let into MPI. Then the watchdog reports one line by report_failure and ends the process with the status of
// a lost rank, without a call of MPI: the launcher, or the other ranks' watchdogs, end the others. Before MPI is up the
// rank is what the launcher's variables say.
#pragma once
#include <cstdint>
#include <string>

#include <kozero/dist/launcher.hpp>
#include <kozero/dist/role.hpp>
#include <kozero/dist/wait_clock.hpp>

#include "whereabouts.hpp"

namespace kozero::dist {

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
