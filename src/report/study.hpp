// SPDX-FileCopyrightText: The KoZeRO authors
// SPDX-License-Identifier: Apache-2.0
// study.hpp: the cases that a report compares: those of a sweep's folder, or runs given one by one.
//   SWEEP/sweep.json             name, command, axes and cases as planned
//   SWEEP/cases/ID/case.json     how a case ended; absent: it has not run
//   SWEEP/cases/ID/run           the run's folder
// The axes of single runs are the keys in which their decks differ.
#pragma once
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "src/report/run_data.hpp"

namespace kozero::report {

struct Axis {
  std::string key;                  ///< "zero.stage", "ranks"
  std::vector<std::string> values;  ///< as plain_value() writes them
};

struct Case {
  std::string name;
  std::string folder;                         ///< of the run
  std::map<std::string, std::string> values;  ///< by axis
  std::string state;                          ///< done | failed | running | not run
  std::string why;
  RunData run;  ///< without rows if it has not run

  [[nodiscard]] std::string value(const std::string& axis) const;
  /// Done, or stopped by a signal, with a measured rate.
  [[nodiscard]] bool is_measured() const { return (state == "done" || state == "preempted") && run.tokens_per_s > 0.0; }
};

struct Study {
  std::string title, command, started;
  std::map<std::string, std::string> program;  ///< facts of the program and machine
  bool is_sweep = false;
  std::vector<Axis> axes;
  std::vector<Case> cases;

  [[nodiscard]] const Axis* axis(const std::string& key) const;
  [[nodiscard]] bool is_one_run() const { return !is_sweep && cases.size() == 1; }
};

/// Throws Error(input) if a path is neither a run's nor a sweep's folder, or if a sweep is not alone.
Study read_study(const std::vector<std::string>& paths);

}  // namespace kozero::report
