// SPDX-FileCopyrightText: The KoZeRO authors
// SPDX-License-Identifier: Apache-2.0
// report.cpp: the command `report`: a page with a verdict, figures and tables of runs or of a sweep.
#include <iostream>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include <kozero/commands/commands.hpp>
#include <kozero/program/arguments.hpp>
#include <kozero/report/report.hpp>
#include "io/posix/readable.hpp"

namespace kozero::commands {

void report(const distributed::Environment& environment, const Arguments& arguments) {
  program::OptionParser parser("report");
  std::vector<std::string> paths;
  std::string out;
  program::JsonOutput json;
  parser.add("runs", paths).required().at_least_values(1);
  parser.add("--out", out, "the report's folder")
      .default_text("`report` in the run's or sweep's folder; of several runs, here")
      .type_name("FOLDER");
  json.add_to(parser);
  parser.parse(arguments);
  if (environment.rank() != 0) return;
  const report::Report written = report::write_report(paths, out);
  std::cout << io::printable(written.verdict) << '\n' << io::printable_line(written.page) << std::endl;
  json.print(written.facts);
}

}  // namespace kozero::commands
