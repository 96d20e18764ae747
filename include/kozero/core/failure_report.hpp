// SPDX-FileCopyrightText: The KoZeRO authors
// SPDX-License-Identifier: Apache-2.0
// failure_report.hpp: the one line that a process leaves when it ends before its work is done: by main, by a thread
// that watches another one, or before members are destroyed (which may wait for a dead disk or a lost rank).
//   report_failure(5, "[rank 1] error: ...");                                    any thread; `status`: the exit status
//   set_failure_reporter([](int status, const std::string& line) { ... });       records it in files
// The line goes to stderr first, in one write. Then a thread of its own calls the reporter, which a disk that hangs
// delays by at most 3 s. Only the first report of a process is written; a later call waits for it to end.
#pragma once
#include <functional>
#include <string>

namespace kozero {

/// Must neither throw nor call MPI. It may outlive the objects of the thread that set it: it owns what it needs.
using FailureReporter = std::function<void(int status, const std::string& line)>;

/// An empty `reporter` restores the default: stderr alone.
void set_failure_reporter(FailureReporter reporter);

/// `line` without its line break. Returns when a launcher that reads stderr through a pipe has taken the line (waits at
/// most 1 s for that), so that the caller may abort the job.
void report_failure(int status, const std::string& line);

/// "[rank 1] error: what", or for Failure::preempted's status, which is no error, "[rank 1] what".
std::string failure_line(int rank, int status, const std::string& what);

inline constexpr const char* kMemoryExhausted = "memory is exhausted on this node (an allocation failed)";

/// From now on std::terminate reports its exception, or that there is none, calls `end` and aborts.
void report_terminate(int rank, void (*end)(int status));

}  // namespace kozero
