// SPDX-FileCopyrightText: The KoZeRO authors
// SPDX-License-Identifier: Apache-2.0
// stop_signals.hpp: the signals that ask a training run to save and stop (run.stop_signals).
//   prepare_signals(argv)             before libraries are initialized: blocks the signals, for all threads
//   await_stop_signals(arguments)     before MPI is up: starts the thread that reads the signals
//   end_at_stop_signal(where)         nothing to save yet: a signal ends the job at once, with status 75
//   note_stop_signals()               steps are computed: stop_signal() names the signal, the ranks agree on a step
// There is no signal handler. The generated code of a library may keep data below the stack pointer in a workspace on
// the heap, as oneDNN's does, where a handler on the thread's own stack would overwrite it. Every thread blocks the
// signals instead, and a single thread reads them from a signalfd(2). SIGINT after a noted signal ends the job at once,
// with status 130. A signal that the deck does not list has its default action.
#pragma once
#include <functional>
#include <mutex>
#include <string>
#include <vector>

namespace kozero::run {

/// Before libraries are initialized: they may start threads, and UCX gives SIGHUP a handler, which hides that nohup
/// ignores it. Files that grow beyond `ulimit -f` are failed writes from now on. For `train`, also blocks the stop
/// signals and ignores SIGPIPE. `argv` ends in a null. Allocates nothing.
void prepare_signals(char** argv);
/// Undoes what libraries did to signals that were ignored at the start. A program that replaces this one would
/// otherwise find UCX's handler of SIGHUP reset to the default action.
void restore_ignored_signals();
/// From now on stop signals end a `train` of these arguments in good order.
void await_stop_signals(const std::vector<std::string>& arguments);

/// How a signal ends this process's job.
struct StopActions {
  int rank = 0;
  std::string command;                         ///< the command to run again; "" if not known yet
  void (*end)(int status) = nullptr;           ///< ends all ranks; nullptr: this process is alone
  std::function<void(int signal)> unanswered;  ///< called if the ranks have not agreed on a noted signal after 2 s
};

void set_stop_actions(StopActions actions);

/// Only these signals are stop signals from now on: names such as "SIGTERM".
void keep_stop_signals(const std::vector<std::string>& names);

/// `where`: "before the first step". A signal that was noted before ends the job now.
void end_at_stop_signal(const std::string& where);
/// Does not return if a signal is ending the job already.
void note_stop_signals();
/// The run is complete. Does not return if a signal is ending the job already.
void ignore_stop_signals();

/// A signal does not end the job while the lock is held. Does not return if one is ending the job already.
[[nodiscard]] std::unique_lock<std::mutex> hold_stop_signals();

/// The number of the noted signal; 0 if none.
int stop_signal();
/// Records that the run answers the noted signal, so that `unanswered` is not called.
void answer_stop_signal();
std::string signal_name(int signal);

}  // namespace kozero::run
