// SPDX-FileCopyrightText: The KoZeRO authors
// SPDX-License-Identifier: Apache-2.0
// stop_signals.hpp: the events that end a training run early: stop signals (run.stop_signals) and the death of a
// process on the same node. A signal asks the run to save and stop. A thread waits on the pidfd of a peer and calls
// back when the peer ends.
#pragma once
#include <functional>
#include <string>
#include <sys/types.h>
#include <thread>
#include <vector>

namespace kozero::commands {

// Notices within microseconds that a process of the same node ended, by a thread that waits on its
// pidfd. A launcher kills the other ranks some milliseconds after one was killed. In about half of the cases that is
// enough to write a failure note; where the launcher does not kill them, in all.     pidfd_open(2), Linux 5.3

class PeerWatch {
 public:
  /// Calls `ended`, once, on a thread of its own. Watches nothing where the system has no pidfd.
  PeerWatch(pid_t peer, std::function<void()> ended);
  /// Returns when `ended` is not running and never will be. Not from `ended` itself.
  ~PeerWatch();
  PeerWatch(const PeerWatch&) = delete;
  PeerWatch& operator=(const PeerWatch&) = delete;

 private:
  int peer_ = -1;
  int stop_ = -1;  // an eventfd
  std::thread thread_;
};

/// Names the processes that this one can watch: two of equal names share a host and its process numbers.
std::string process_space();

// Signals that ask a training run to stop (run.stop_signals).
//   await_stop_signals(arguments)     main, before MPI is up: from here on no stop signal kills a `train`
//   end_at_stop_signal(where)         nothing is there to be saved: a signal ends the job at once, with status 75
//   note_stop_signals()               steps are computed: stop_signal() names the signal, the ranks agree on a step
// A handler stores the signal's number and wakes a thread, which does the rest. SIGINT after a noted signal ends the
// job at once, with status 130. A signal that was ignored when the program started (nohup) stays ignored.

/// How a signal ends this process's job.
struct StopActions {
  int rank = 0;
  std::string command;                         ///< to run again; "" where it is not known yet
  void (*end)(int status) = nullptr;           ///< ends all ranks; nullptr: this process is alone
  std::function<void(int signal)> unanswered;  ///< a noted signal was not answered by the ranks' agreement for 2 s
};

void set_stop_actions(StopActions actions);

/// These and no others are stop signals from now on: names such as "SIGTERM".
void keep_stop_signals(const std::vector<std::string>& names);

/// `where`: "before the first step". A signal that was noted before ends the job now.
void end_at_stop_signal(const std::string& where);
/// Where a signal is ending the job already, this does not return.
void note_stop_signals();
/// The run is complete. Where a signal is ending the job already, this does not return.
void ignore_stop_signals();

/// The number of the signal that was noted, 0 without one.
int stop_signal();
/// The noted signal is being answered: `unanswered` is not called.
void answer_stop_signal();
std::string signal_name(int signal);

}  // namespace kozero::commands
