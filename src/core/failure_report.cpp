// SPDX-FileCopyrightText: The KoZeRO authors
// SPDX-License-Identifier: Apache-2.0
// failure_report.cpp: the reporter, and the default, which writes to stderr.
#include <cstdio>
#include <utility>

#include <kozero/core/failure_report.hpp>

namespace kozero {
namespace {

FailureReporter& reporter_in_force() {
  static FailureReporter reporter;
  return reporter;
}

}  // namespace

void set_failure_reporter(FailureReporter reporter) { reporter_in_force() = std::move(reporter); }

void report_failure(int status, const std::string& line) {
  if (reporter_in_force()) return reporter_in_force()(status, line);
  std::fprintf(stderr, "%s\n", line.c_str());
  std::fflush(stderr);
}

}  // namespace kozero
