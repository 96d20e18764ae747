// SPDX-FileCopyrightText: The KoZeRO authors
// SPDX-License-Identifier: Apache-2.0
// stop_signals.cpp: the signal handler, which touches only atomics and a semaphore.
#include <algorithm>
#include <array>
#include <atomic>
#include <cerrno>
#include <csignal>
#include <ctime>
#include <mutex>
#include <semaphore.h>
#include <thread>
#include <unistd.h>
#include <utility>

#include <kozero/commands/command.hpp>
#include <kozero/core/error.hpp>
#include <kozero/dist/environment.hpp>
#include "io/deck/deck.hpp"
#include "src/commands/stop_signals.hpp"

namespace kozero::commands {

// Process-wide, as signals are; the handler touches nothing but atomics and a semaphore.

namespace {

constexpr std::array<std::pair<const char*, int>, 6> kNames = {{{"SIGTERM", SIGTERM},
                                                                {"SIGINT", SIGINT},
                                                                {"SIGUSR1", SIGUSR1},
                                                                {"SIGUSR2", SIGUSR2},
                                                                {"SIGHUP", SIGHUP},
                                                                {"SIGXCPU", SIGXCPU}}};
constexpr int kSecondInterrupt = 128 + SIGINT;  // what a shell says of a process that SIGINT ended
constexpr long kAnswerPatience = 2;             // seconds

struct Signals {
  sem_t wake{};
  std::atomic<int> came{0};              // the first one's number
  std::atomic<bool> interrupted{false};  // SIGINT after it
  std::atomic<bool> answered{false};
  std::atomic<bool> noted{false};  // the phase
  std::mutex end_mutex;            // held while the job is ended
  bool over = false;               // signals are ignored
  std::mutex mutex;                // of what follows
  StopActions actions;
  std::string where = "before the run began";
};

/// Never destroyed: a handler may run while the process ends.
Signals& signals() {
  static auto* const kSignals = new Signals;
  return *kSignals;
}

extern "C" void on_stop_signal(int signal) {
  const int error = errno;
  Signals& mine = signals();
  int none = 0;
  if (!mine.came.compare_exchange_strong(none, signal) && signal == SIGINT) mine.interrupted = true;
  sem_post(&mine.wake);
  errno = error;
}

/// Ends the process with end_mutex held, so that the main thread waits where it would begin to train or end the run
/// (note_stop_signals(), ignore_stop_signals()). Returns where the phase is not `noted` any more, or the run is over.
void end_job(int status, const std::string& what, bool noted) {
  const std::lock_guard ending(signals().end_mutex);
  if (signals().over || signals().noted != noted) return;
  StopActions actions;
  std::string where;
  {
    const std::lock_guard lock(signals().mutex);
    actions = signals().actions;
    where = signals().where;
  }
  const std::string again = actions.command.empty() ? "" : "; to run it again: " + actions.command;
  const std::string line = status == kSecondInterrupt ? what : what + " " + where + again;
  report_failure(status, failure_line(actions.rank, static_cast<int>(Failure::preempted), line));
  if (actions.end != nullptr) actions.end(status);
  _exit(status);
}

bool wait_for_wake(bool limited) {
  struct timespec until {};
  clock_gettime(CLOCK_REALTIME, &until);
  until.tv_sec += kAnswerPatience;
  while ((limited ? sem_timedwait(&signals().wake, &until) : sem_wait(&signals().wake)) != 0) {
    if (errno == ETIMEDOUT) return false;
  }
  return true;
}

void watch() {
  Signals& mine = signals();
  bool told = false;
  while (true) {
    const bool waits = mine.came != 0 && !mine.answered && !told;
    const bool woken = wait_for_wake(waits);
    const int signal = mine.came;
    if (signal == 0) continue;
    const bool noted = mine.noted;
    if (mine.interrupted && noted) {
      const std::string which = signal == SIGINT ? "a second SIGINT" : "SIGINT after " + signal_name(signal);
      end_job(kSecondInterrupt, "ended at once by " + which + ": what was not saved is lost", noted);
    }
    if (!noted) end_job(static_cast<int>(Failure::preempted), "stopped by " + signal_name(signal), noted);
    if (!noted) continue;
    if (woken || mine.answered) continue;
    told = true;
    std::function<void(int)> unanswered;
    {
      const std::lock_guard lock(mine.mutex);
      unanswered = mine.actions.unanswered;
    }
    if (unanswered) unanswered(signal);
  }
}

void handle(int signal, bool handles) {
  struct sigaction now {};
  sigaction(signal, nullptr, &now);
  if (now.sa_handler == SIG_IGN || (!handles && now.sa_handler != on_stop_signal)) return;
  struct sigaction wanted {};
  wanted.sa_handler = handles ? on_stop_signal : SIG_DFL;
  wanted.sa_flags = SA_RESTART;
  sigemptyset(&wanted.sa_mask);
  sigaction(signal, &wanted, nullptr);
}

}  // namespace

void await_stop_signals(const Arguments& arguments) {
  if (arguments.empty() || arguments[0] != "train") return;
  sem_init(&signals().wake, 0, 0);
  signals().actions.rank = dist::known_rank();
  std::thread(watch).detach();
  keep_stop_signals(io::RunKeys().stop_signals);
}

void keep_stop_signals(const std::vector<std::string>& names) {
  for (const auto& [name, signal] : kNames) {
    const auto is_this = [&, same = name](const std::string& each) { return each == same; };
    handle(signal, std::any_of(names.begin(), names.end(), is_this));
  }
}

void set_stop_actions(StopActions actions) {
  const std::lock_guard lock(signals().mutex);
  signals().actions = std::move(actions);
}

void end_at_stop_signal(const std::string& where) {
  {
    const std::lock_guard lock(signals().mutex);
    signals().where = where;
  }
  signals().noted = false;
  sem_post(&signals().wake);
}

void ignore_stop_signals() {
  const std::lock_guard ending(signals().end_mutex);
  signals().over = true;
}

void note_stop_signals() {
  const std::lock_guard ending(signals().end_mutex);
  signals().noted = true;
}

int stop_signal() { return signals().came; }

void answer_stop_signal() { signals().answered = true; }

std::string signal_name(int signal) {
  for (const auto& [name, number] : kNames) {
    if (number == signal) return name;
  }
  return "signal " + std::to_string(signal);
}

}  // namespace kozero::commands
