// SPDX-FileCopyrightText: The KoZeRO authors
// SPDX-License-Identifier: Apache-2.0
// stop_signals.cpp: the thread that reads stop signals from a signalfd, and the phases that decide its action.
#include <poll.h>
#include <sys/eventfd.h>
#include <sys/signalfd.h>
#include <unistd.h>
#include <algorithm>
#include <array>
#include <atomic>
#include <cerrno>
#include <chrono>
#include <csignal>
#include <cstdint>
#include <cstring>
#include <mutex>
#include <string_view>
#include <thread>
#include <utility>

#include <kozero/core/error.hpp>
#include <kozero/distributed/environment.hpp>
#include <kozero/run/stop_signals.hpp>
#include "io/deck/deck.hpp"

namespace kozero::run {

namespace {

constexpr std::array<std::pair<const char*, int>, 6> kNames = {{{"SIGTERM", SIGTERM},
                                                                {"SIGINT", SIGINT},
                                                                {"SIGUSR1", SIGUSR1},
                                                                {"SIGUSR2", SIGUSR2},
                                                                {"SIGHUP", SIGHUP},
                                                                {"SIGXCPU", SIGXCPU}}};
constexpr int kSecondInterrupt = 128 + SIGINT;  // the status that a shell reports for a process ended by SIGINT
constexpr int kAnswerPatience = 2000;           // milliseconds
constexpr std::chrono::milliseconds kFirstRankPatience{500};
constexpr std::chrono::milliseconds kStartPatience{10'000};  // for MPI to be up; batch systems grant 30 s

struct Signals {
  int arrivals = -1;                     // signalfd of the stop signals
  int wake = -1;                         // eventfd: the phase changed
  std::atomic<int> first_signal{0};      // the first stop signal's number
  std::atomic<bool> interrupted{false};  // SIGINT after it
  std::atomic<bool> answered{false};
  std::atomic<bool> noted{false};  // the phase
  std::atomic<bool> has_actions{false};
  std::mutex end_mutex;  // held while the job is ended
  bool over = false;     // signals are ignored
  std::mutex mutex;      // protects the members below
  StopActions actions;
  std::string where = "before the run began";
  sigset_t killing{};  // blocked, but not in run.stop_signals: to be unblocked
};

constinit sigset_t ignored_at_start{};  // set before any constructor has run

/// Never destroyed: its thread runs until the process ends.
Signals& signals() {
  static auto* const kSignals = new Signals;
  return *kSignals;
}

/// The signals with these names that were not ignored when the program started (nohup).
sigset_t set_of(const std::vector<std::string>& names) {
  sigset_t set;
  sigemptyset(&set);
  for (const auto& [name, signal] : kNames) {
    const bool is_named = std::find(names.begin(), names.end(), name) != names.end();
    if (is_named && sigismember(&ignored_at_start, signal) == 0) sigaddset(&set, signal);
  }
  return set;
}

sigset_t all_stop_signals() {
  std::vector<std::string> names;
  for (const auto& [name, signal] : kNames) names.emplace_back(name);
  return set_of(names);
}

/// A rank that ended before MPI is up would leave the others waiting for it: a launcher ends them only if MPI knew the
/// rank.
void await_actions() {
  constexpr std::chrono::milliseconds kLook{20};
  for (auto waited = kLook; !signals().has_actions && waited < kStartPatience; waited += kLook) {
    std::this_thread::sleep_for(kLook);
  }
}

/// Ends the process with end_mutex held, so that the main thread waits where it would begin to train or end the run
/// (note_stop_signals(), ignore_stop_signals()). Returns if the phase is not `noted` any more, or if the run is over.
void end_job(int status, const std::string& what, bool noted) {
  const std::lock_guard ending(signals().end_mutex);
  if (signals().over || signals().noted != noted) return;
  await_actions();
  StopActions actions;
  std::string where;
  {
    const std::lock_guard lock(signals().mutex);
    actions = signals().actions;
    where = signals().where;
  }
  // A launcher forwards a signal to all ranks. Rank 0 ends the job and reports it; another rank does if rank 0 does
  // not.
  if (actions.rank > 0) std::this_thread::sleep_for(kFirstRankPatience);
  const std::string again = actions.command.empty() ? "" : "; to run it again: " + actions.command;
  const std::string line = status == kSecondInterrupt ? what : what + " " + where + again;
  report_failure(status, failure_line(actions.rank, kPreempted, line));
  if (actions.end != nullptr) actions.end(status);
  _exit(status);
}

/// Reads the signals that have arrived. Returns false if none arrived and no phase changed within `milliseconds`.
bool wait_for_signals(int milliseconds) {
  Signals& mine = signals();
  std::array<struct pollfd, 2> either = {{{mine.arrivals, POLLIN, 0}, {mine.wake, POLLIN, 0}}};
  if (::poll(either.data(), either.size(), milliseconds) == 0) return false;
  std::uint64_t count = 0;
  static_cast<void>(!::read(mine.wake, &count, sizeof(count)));
  signalfd_siginfo arrived{};
  while (::read(mine.arrivals, &arrived, sizeof(arrived)) == sizeof(arrived)) {
    const auto signal = static_cast<int>(arrived.ssi_signo);
    if (mine.first_signal == 0) {
      mine.first_signal = signal;
    } else if (signal == SIGINT) {
      mine.interrupted = true;
    }
  }
  return true;
}

/// Lets the signals that are not in run.stop_signals have their default action. It suffices that one thread does not
/// block them: the kernel then ends the whole process.
void unblock_others() {
  const std::lock_guard lock(signals().mutex);
  pthread_sigmask(SIG_UNBLOCK, &signals().killing, nullptr);
}

void tell_unanswered(int signal) {
  std::function<void(int)> unanswered;
  {
    const std::lock_guard lock(signals().mutex);
    unanswered = signals().actions.unanswered;
  }
  if (unanswered) unanswered(signal);
}

void take_signals() {
  Signals& mine = signals();
  bool told = false;
  while (true) {
    const bool waits_for_answer = mine.first_signal != 0 && !mine.answered && !told;
    const bool woken = wait_for_signals(waits_for_answer ? kAnswerPatience : -1);
    unblock_others();
    const int signal = mine.first_signal;
    if (signal == 0) continue;
    const bool noted = mine.noted;
    if (mine.interrupted && noted) {
      const std::string which = signal == SIGINT ? "a second SIGINT" : "SIGINT after " + signal_name(signal);
      end_job(kSecondInterrupt, "ended at once by " + which + ": what was not saved is lost", noted);
    }
    if (!noted) end_job(kPreempted, "stopped by " + signal_name(signal), noted);
    if (!noted || woken || mine.answered) continue;
    told = true;
    tell_unanswered(signal);
  }
}

void wake_thread() {
  const std::uint64_t one = 1;
  if (signals().wake >= 0) static_cast<void>(!::write(signals().wake, &one, sizeof(one)));
}

bool trains(const char* command) { return command != nullptr && std::string_view(command) == "train"; }

}  // namespace

void prepare_signals(char** argv) {
  std::signal(SIGXFSZ, SIG_IGN);  // a write beyond `ulimit -f` fails with EFBIG: a failed write like any other
  if (!trains(argv[1])) return;
  std::signal(SIGPIPE, SIG_IGN);  // training continues if standard output is closed (io::Log)
  sigset_t stops;
  sigemptyset(&stops);
  for (const auto& [name, signal] : kNames) {
    struct sigaction now {};
    sigaction(signal, nullptr, &now);
    sigaddset(now.sa_handler == SIG_IGN ? &ignored_at_start : &stops, signal);
  }
  pthread_sigmask(SIG_BLOCK, &stops, nullptr);
}

void restore_ignored_signals() {
  for (const auto& [name, signal] : kNames) {
    if (sigismember(&ignored_at_start, signal) == 1) std::signal(signal, SIG_IGN);
  }
}

void await_stop_signals(const std::vector<std::string>& arguments) {
  if (arguments.empty() || !trains(arguments[0].c_str())) return;
  Signals& mine = signals();
  mine.actions.rank = distributed::known_rank();
  sigemptyset(&mine.killing);
  const sigset_t default_signals = set_of(io::RunKeys().stop_signals);
  mine.arrivals = ::signalfd(-1, &default_signals, SFD_CLOEXEC | SFD_NONBLOCK);
  mine.wake = ::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
  if (mine.arrivals < 0 || mine.wake < 0) {
    throw Error(Failure::internal, std::string("stop signals cannot be waited for: ") + std::strerror(errno));
  }
  std::thread(take_signals).detach();
}

void keep_stop_signals(const std::vector<std::string>& names) {
  Signals& mine = signals();
  const sigset_t kept = set_of(names);
  {
    const std::lock_guard lock(mine.mutex);
    mine.killing = all_stop_signals();
    for (const auto& [name, signal] : kNames) {
      if (sigismember(&kept, signal) == 1) sigdelset(&mine.killing, signal);
      std::signal(signal, SIG_DFL);  // MPICH and UCX have set handlers of their own for SIGUSR1 and SIGHUP
    }
  }
  restore_ignored_signals();
  ::signalfd(mine.arrivals, &kept, 0);
  wake_thread();
}

void set_stop_actions(StopActions actions) {
  const std::lock_guard lock(signals().mutex);
  signals().actions = std::move(actions);
  signals().has_actions = true;
}

void end_at_stop_signal(const std::string& where) {
  {
    const std::lock_guard lock(signals().mutex);
    signals().where = where;
  }
  signals().noted = false;
  wake_thread();
}

std::unique_lock<std::mutex> hold_stop_signals() { return std::unique_lock(signals().end_mutex); }

void ignore_stop_signals() {
  const std::lock_guard ending(signals().end_mutex);
  signals().over = true;
}

void note_stop_signals() {
  const std::lock_guard ending(signals().end_mutex);
  signals().noted = true;
}

int stop_signal() { return signals().first_signal; }

void answer_stop_signal() { signals().answered = true; }

std::string signal_name(int signal) {
  for (const auto& [name, number] : kNames) {
    if (number == signal) return name;
  }
  return "signal " + std::to_string(signal);
}

}  // namespace kozero::run
