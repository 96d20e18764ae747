// SPDX-FileCopyrightText: The KoZeRO authors
// SPDX-License-Identifier: Apache-2.0
// error.hpp: the exception type, the exit status of each kind of failure, and the report of a failing process.
//   throw Error(Failure::deck, "model.heads = 0: accepted are 1 and more")
//   report_failure(5, "[rank 1] error: ...");                                    any thread; `status`: the exit status
//   set_failure_reporter([](int status, const std::string& line) { ... });       records it in files
// Code that detects a failure throws; main alone catches, prints one line and returns the status. An error that every
// rank throws with the same text is Seen::by_all_ranks: main then ends the job in good order instead of aborting it.
// report_failure() writes the line when a process ends before its work is done: from main, from a watchdog thread, or
// before members are destroyed (destructors may wait for a dead disk or a lost rank). It writes the line to stderr, in
// one write. Then a separate thread calls the reporter; report_failure() waits at most 3 s for the reporter, in case a
// disk hangs. Only the first report of a process is written; a later call waits for the first to end.
#pragma once
#include <functional>
#include <stdexcept>
#include <string>
#include <string_view>

namespace kozero {

/// Kinds of failure; the value is the process's exit status.
enum class Failure : int {
  internal = 1,       ///< a broken invariant: a bug in KoZeRO
  deck = 2,           ///< the user's deck, command line or usage
  input = 3,          ///< a missing, truncated or malformed input file
  write = 4,          ///< an output could not be written
  communication = 5,  ///< a rank or a collective was lost
  non_finite = 6,     ///< a loss, gradient or weight is not finite
  preempted = 75,     ///< stopped on request; run again to go on
};

inline constexpr int kPreempted = static_cast<int>(Failure::preempted);  ///< the exit status

/// The text on one line: control characters are escaped as \n, \t, \x1b or \u0085, so that no path and no value can
/// break a line or move a terminal's cursor. Other bytes stay.
std::string escaped(std::string_view text);

/// An error with one line of text for the user: who, what, which values are accepted, what to do. The text is escaped.
class Error : public std::runtime_error {
 public:
  enum class Seen { by_this_rank, by_all_ranks };

  Error(Failure failure, const std::string& what, Seen seen = Seen::by_this_rank)
      : std::runtime_error(escaped(what)), failure_(failure), seen_(seen) {}

  [[nodiscard]] int exit_status() const { return static_cast<int>(failure_); }
  [[nodiscard]] Failure failure() const { return failure_; }
  [[nodiscard]] bool seen_by_all_ranks() const { return seen_ == Seen::by_all_ranks; }

 private:
  Failure failure_;
  Seen seen_;
};

/// Throws Error(internal, text) if `holds` is false: an invariant is broken. `holds` must have no side effects.
inline void require(bool holds, const std::string& text) {
  if (!holds) throw Error(Failure::internal, text);
}

/// The name among `accepted` nearest to `given` by edit distance, or "" if none is near.
std::string nearest_name(const std::string& given, const std::string* first, const std::string* last);

/// Must neither throw nor call MPI. The reporter may outlive the objects of the thread that set it, so it must own all
/// that it uses.
using FailureReporter = std::function<void(int status, const std::string& line)>;

/// An empty `reporter` restores the default, which writes only to stderr.
void set_failure_reporter(FailureReporter reporter);

/// `line` has no line break. If a launcher reads stderr through a pipe, waits at most 1 s until the launcher has read
/// the line, so that the caller may then abort the job. Returns the status of the process's first report, whose line
/// alone is written.
int report_failure(int status, const std::string& line);

/// Writes the exit status to the file that KOZERO_STATUS_FILE names, for kozero.sh: a launcher's status may be another.
/// The first status of a job stays. report_failure() calls it.
void tell_exit_status(int status);

/// "[rank 1] error: what", escaped; for the status of Failure::preempted, which is not an error, "[rank 1] what".
std::string failure_line(int rank, int status, const std::string& what);

inline constexpr const char* kMemoryExhausted = "memory is exhausted on this node (an allocation failed)";

/// From now on std::terminate reports the current exception, or that there is none, calls `end` and aborts.
void report_terminate(int rank, void (*end)(int status));

}  // namespace kozero
