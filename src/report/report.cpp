// SPDX-FileCopyrightText: The KoZeRO authors
// SPDX-License-Identifier: Apache-2.0
// report.cpp: reads the cases, compares them, draws, and writes the page.
#include <fmt/format.h>
#include <fmt/ranges.h>
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

/// The figures that an earlier report's page links to.
void remove_figures(const std::string& folder, const std::string& page) {
  constexpr std::string_view kBegin = "<a href=\"", kEnd = ".svg\"";
  std::error_code ignored;
  for (std::size_t at = page.find(kBegin); at != std::string::npos; at = page.find(kBegin, at + 1)) {
    const std::size_t begin = at + kBegin.size(), end = page.find_first_not_of("abcdefghijklmnopqrstuvwxyz_", begin);
    if (end == std::string::npos || page.compare(end, kEnd.size(), kEnd) != 0) continue;
    const std::string path = folder + "/" + page.substr(begin, end - begin);
    for (const char* type : {".svg", ".png"}) fs::remove(path + type, ignored);
  }
}

/// Makes the folder, or removes the figures of an earlier report in it. Throws Error(write) if it has files and no
/// report's page.
void prepare_folder(const std::string& folder) {
  std::error_code error;
  fs::create_directories(folder, error);
  if (error || !io::is_folder(folder))
    throw Error(Failure::write,
                fmt::format("{}: cannot be made: {}; give another one with --out", folder, error.message()));
  const std::string path = folder + "/" + kPage;
  const std::string page = io::path_kind(path) == io::PathKind::file ? io::read_whole_file(path, kMostPage) : "";
  const bool is_ours = page.find(kGenerator) != std::string::npos;
  if (is_ours) remove_figures(folder, page);
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
  return {page, fmt::format("{}", fmt::join(findings.sentences, "\n")) + (note.empty() ? "" : "\n" + note), facts};
}

}  // namespace kozero::report
