// SPDX-FileCopyrightText: The KoZeRO authors
// SPDX-License-Identifier: Apache-2.0
// sweep_process.hpp: the process of a case, the signals that it gets, and the lock of a folder.
// A case is one process (`kozero train`, or a launcher of its ranks) in a process group of its own, so that a
// terminal's Ctrl-C reaches it once, by StopSignals. It ends by SIGTERM when this process is killed. It inherits the
// lock of its folder, so the next sweep waits until it has ended. A case that is asked to end is woken by SIGCONT, if
// it was suspended, and killed if it has not ended 10 s later.
#pragma once
#include <csignal>
#include <functional>
#include <string>
#include <vector>

namespace kozero::commands {

/// SIGINT, SIGTERM, SIGHUP, SIGUSR1 and SIGUSR2, which this process blocks from construction on, unless they were
/// ignored when it began (nohup). Construct it before threads start.
class StopSignals {
 public:
  StopSignals();

  /// The first signal that came; 0 if none did.
  [[nodiscard]] int first() const { return first_; }
  /// Whether SIGINT came after the first signal.
  [[nodiscard]] bool is_urgent() const { return urgent_; }
  /// Waits up to half a second for a signal, or for the end of a child. Returns the number of a stop signal, else 0.
  int wait();

 private:
  sigset_t set_{};
  int first_ = 0;
  bool urgent_ = false;
};

/// flock(2) on a folder. On a file system without locks, it is not held.
class FolderLock {
 public:
  enum class For { this_process, child_too };

  /// Makes the folder if it does not exist. Waits for another holder, calling `waits` once; throws Error(deck), which
  /// `who` begins, if it still holds after `patience_s` seconds, and Error(preempted) if a signal comes. Throws
  /// Error(write) if the folder cannot be made.
  FolderLock(const std::string& folder, For whom, double patience_s, const std::string& who, StopSignals& signals,
             const std::function<void()>& waits = {});
  ~FolderLock();
  FolderLock(const FolderLock&) = delete;
  FolderLock& operator=(const FolderLock&) = delete;

 private:
  int opened_ = -1;
};

/// How a case's process ended.
struct ProcessEnd {
  int status = 0;  ///< what rank 0 told (KOZERO_STATUS_FILE); else the process's, 128 + n if signal n ended it
  double seconds = 0.0;
  bool ran_out = false;  ///< of its time
};

/// What a process runs, and the files that it uses.
struct ProcessOrder {
  std::vector<std::string> words;
  std::string deck;         ///< KOZERO_DECK_COPY (io/deck/named_deck.hpp)
  std::string output;       ///< standard output and standard error
  std::string status_file;  ///< KOZERO_STATUS_FILE, for rank 0's exit status
  double timeout_s = 0.0;   ///< SIGTERM after so many seconds; 0: never
};

/// Runs the words with empty standard input. `tick` is called about twice per second. Stop signals are handed on; an
/// urgent one kills the process and all that it started. Throws Error(deck) if the program is not found, Error(write)
/// if a file cannot be made.
ProcessEnd run_process(const ProcessOrder& order, StopSignals& signals,
                       const std::function<void(double seconds)>& tick);

/// The reason of a failure, from what a case printed: its first error, else its last line.
std::string reason_in(const std::string& output);

}  // namespace kozero::commands
