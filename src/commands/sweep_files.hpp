// SPDX-FileCopyrightText: The KoZeRO authors
// SPDX-License-Identifier: Apache-2.0
// sweep_files.hpp: the files of a sweep.
//   SWEEP/sweep.json            the sweep: matrix, program, machine, axes, all cases with their plans
//   SWEEP/cases/ID/case.json    a case that ended: done or failed, seconds, command
//   SWEEP/cases/ID/run/         its run       SWEEP/cases/ID/output.txt    what it printed
//   SWEEP/cases/ID/deck.toml    the deck that it trained from, as it was when the sweep began
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
inline constexpr const char* kDeckOfCase = "deck.toml";

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

/// Removes what an earlier start of the case wrote, and writes its deck. Throws Error(write).
void begin_case(const io::Matrix& matrix, const SweepCase& one);

struct SweepFile {
  nlohmann::ordered_json json;                 ///< null if there is no file
  bool is_current = false;                     ///< is of these cases
  std::vector<nlohmann::ordered_json> others;  ///< cases of the folder that are not in the matrix, as in the file
};

/// Reads SWEEP/sweep.json, and from it the plans of `cases`. Throws Error(deck) if the folder holds something else, or
/// a case with the name of one of these that is another: of another deck, other data or another program.
SweepFile read_sweep(const io::Matrix& matrix, std::vector<SweepCase>& cases);

/// "1 case of the folder is not in this matrix and stays: zero.stage=1"; "" if there is none.
std::string text_of_others(const SweepFile& sweep);

/// Writes SWEEP/sweep.json. `before`: the sweep that these cases extend. Throws Error(write).
void write_sweep(const io::Matrix& matrix, const std::vector<SweepCase>& cases, const std::string& command,
                 const SweepFile& before);

}  // namespace kozero::commands
