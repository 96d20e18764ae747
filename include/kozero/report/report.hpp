// SPDX-FileCopyrightText: The KoZeRO authors
// SPDX-License-Identifier: Apache-2.0
// report.hpp: one HTML page about runs or a sweep, and its figures as SVG and PNG files beside it.
//   FOLDER/index.html    no script, no request to anywhere, under 1 MB    FOLDER/loss_steps.svg, loss_steps.png, ...
// The first paragraph is a verdict, computed from the measured data. Metrics are read line by line, in bounded memory.
#pragma once
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

namespace kozero::report {

struct Report {
  std::string page;              ///< the path of index.html
  std::string verdict;           ///< sentences
  nlohmann::ordered_json facts;  ///< the numbers behind the verdict
};

/// Writes the report of run folders, or of one sweep's folder. `out`: its folder; "": `report` in the run's or sweep's
/// folder, or in the current one for several runs. A folder that holds other files than a report's is left alone:
/// Error(write). Throws Error(input) if a path is neither a run nor a sweep. If gnuplot is missing or fails, the
/// page has no figures, and says so.
Report write_report(const std::vector<std::string>& paths, const std::string& out);

}  // namespace kozero::report
