// SPDX-FileCopyrightText: The KoZeRO authors
// SPDX-License-Identifier: Apache-2.0
// stop_signals.hpp: the signals that ask a training run to save and stop (run.stop_signals).
#pragma once
#include <functional>
#include <string>
#include <vector>

namespace kozero::commands {

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
