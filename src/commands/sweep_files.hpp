// SPDX-FileCopyrightText: The KoZeRO authors
// SPDX-License-Identifier: Apache-2.0
// sweep_files.hpp: the files of a sweep.
//   SWEEP/sweep.json            the sweep: matrix, program, machine, axes, all cases with their plans
//   SWEEP/cases/ID/case.json    a case that ended: done or failed, seconds, command
//   SWEEP/cases/ID/run/         its run       SWEEP/cases/ID/output.txt    what it printed
// docs/experiments.md has their keys. The JSON files are written whole, so a killed sweep leaves none in parts.
#pragma once
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "io/deck/matrix_file.hpp"
#include "src/commands/sweep_cases.hpp"

namespace kozero::commands {

inline constexpr const char* kOutputFile = "output.txt";
inline constexpr const char* kStatusOfRanks = "exit_status";  ///< while a case runs

/// How an ended case ended.
struct CaseRecord {
  bool is_done = false;  ///< else failed
  int exit_status = 0;
  double seconds = 0.0;
  std::string why;  ///< of a failure
};

/// nullopt if the case has not ended, or if its file is damaged.
std::optional<CaseRecord> record_of(const SweepCase& one);

/// Writes case.json. `command`: a line for a shell; `started`: io::time_now() then. Throws Error(write).
void write_record(const SweepCase& one, const CaseRecord& record, const std::string& command,
                  const std::string& started);

/// Removes what an earlier start of the case wrote.
void remove_case(const SweepCase& one);

struct SweepFile {
  nlohmann::ordered_json json;  ///< null if there is no file
  bool is_current = false;      ///< has all cases
};

/// Reads SWEEP/sweep.json. Throws Error(deck) if the folder holds something else, or a sweep with other cases.
SweepFile read_sweep(const io::Matrix& matrix, const std::vector<SweepCase>& cases);

/// Writes SWEEP/sweep.json. `before`: the sweep that these cases extend. Throws Error(write).
void write_sweep(const io::Matrix& matrix, const std::vector<SweepCase>& cases, const std::string& command,
                 const SweepFile& before);

}  // namespace kozero::commands
