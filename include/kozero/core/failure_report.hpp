// SPDX-FileCopyrightText: The KoZeRO authors
// SPDX-License-Identifier: Apache-2.0
// failure_report.hpp: how a failure is reported where no exception can reach main: by a thread that watches another
// one, or before members are destroyed. Main sets the reporter; without one the line goes to stderr.
//   set_failure_reporter([](int status, const std::string& line) { ... });      once, before other threads start
//   report_failure(5, "[rank 1] error: ...");                                   any thread; `status`: the exit status
// The reporter may be called by several threads at once, and must neither throw nor call MPI.
#pragma once
#include <functional>
#include <string>

namespace kozero {

using FailureReporter = std::function<void(int status, const std::string& line)>;

/// An empty `reporter` restores the default.
void set_failure_reporter(FailureReporter reporter);

/// `line` without its line break.
void report_failure(int status, const std::string& line);

}  // namespace kozero
