// SPDX-FileCopyrightText: The KoZeRO authors
// SPDX-License-Identifier: Apache-2.0
// report.cpp: reads the cases, compares them, draws, and writes the page.
#include <fmt/format.h>
#include <filesystem>

#include <kozero/core/error.hpp>
#include <kozero/report/report.hpp>
#include "io/posix/file.hpp"
#include "io/run/run_folder.hpp"
#include "src/report/analysis.hpp"
#include "src/report/figures.hpp"
#include "src/report/page.hpp"

namespace kozero::report {
namespace {

namespace fs = std::filesystem;

constexpr const char* kPage = "index.html";
constexpr std::int64_t kMostPage = std::int64_t{64} << 20;

/// Makes the folder. Throws Error(write) if it has files and no report's page.
void prepare_folder(const std::string& folder) {
  std::error_code error;
  fs::create_directories(folder, error);
  if (error || !io::is_folder(folder))
    throw Error(Failure::write,
                fmt::format("{}: cannot be made: {}; give another one with --out", folder, error.message()));
  const std::string page = folder + "/" + kPage;
  const bool is_ours = io::path_kind(page) == io::PathKind::file &&
                       io::read_whole_file(page, kMostPage).find(kGenerator) != std::string::npos;
  if (!is_ours && !fs::is_empty(folder, error)) {
    throw Error(Failure::write, folder +
                                    ": it holds other files than a report's; accepted: a new or empty folder, or "
                                    "that of an earlier report; give one with --out");
  }
}

}  // namespace

Report write_report(const std::vector<std::string>& paths, const std::string& out) {
  const Study study = read_study(paths);
  const std::string folder = !out.empty()       ? io::without_trailing_slash(out)
                             : paths.size() > 1 ? "report"
                                                : io::without_trailing_slash(paths[0]) + "/report";
  prepare_folder(folder);
  const Findings findings = analyze(study);
  std::vector<Figure> figures = figures_of(study, findings);
  const std::string page = folder + "/" + kPage;
  io::write_whole_file(page, page_of(study, findings, {}, ""));  // marks the folder, should this process be killed
  std::string note;
  try {
    draw(figures, folder);
  } catch (const Error& problem) {
    if (problem.failure() == Failure::write) throw;
    note = std::string("Without figures: ") + problem.what();
  }
  io::write_whole_file(page, page_of(study, findings, figures, note));
  nlohmann::ordered_json facts = findings.facts;
  facts["page"] = page;
  facts["figures"] = nlohmann::ordered_json::array();
  for (const Figure& figure : figures) {
    if (!figure.svg.empty()) facts["figures"].push_back(figure.id);
  }
  return {page, findings.verdict + (note.empty() ? "" : "\n" + note), facts};
}

}  // namespace kozero::report
