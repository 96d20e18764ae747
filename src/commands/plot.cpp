// SPDX-FileCopyrightText: The KoZeRO authors
// SPDX-License-Identifier: Apache-2.0
// plot.cpp: curves of runs, drawn by gnuplot in the terminal or into an SVG or PNG file.
// Each run's metrics.jsonl is read once, line by line.
// Incomplete lines are ignored, since the last line of a running run may be half written.
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <unistd.h>
#include <algorithm>
#include <array>
#include <cmath>
#include <filesystem>
#include <iostream>
#include <set>
#include <vector>

#include <kozero/commands/commands.hpp>
#include <kozero/core/error.hpp>
#include <kozero/program/arguments.hpp>
#include <kozero/report/gnuplot.hpp>
#include "io/posix/file.hpp"
#include "io/posix/piped_program.hpp"
#include "io/posix/readable.hpp"
#include "io/run/metrics.hpp"
#include "io/run/run_folder.hpp"
#include "io/run/run_output.hpp"

namespace kozero::commands {

using program::OptionParser;
using report::Curve;
using report::gnuplot_text;

namespace {

struct Quantity {
  const char* title;
  const char* unit;
  bool from_zero;  ///< whether its axis begins at 0
};

constexpr std::array<std::string_view, 4> kKeys = {"loss", "val_loss", "lr", "grad_norm"};  // of metrics.jsonl
constexpr std::array<Quantity, kKeys.size()> kQuantities = {{{"loss", "nats per token", false},
                                                             {"validation loss", "nats per token", false},
                                                             {"learning rate", "learning rate", true},
                                                             {"gradient norm", "norm before clipping", true}}};
constexpr std::size_t kStretches = 1024;  // more than a picture has columns

struct DrawnRun {
  std::string name;
  std::array<std::vector<Curve::Point>, kKeys.size()> curves;
};

/// The curves of a metrics.jsonl; "" in `problem`, or why there are none.
DrawnRun read_run(const std::string& name, const std::string& metrics, std::string& problem) {
  std::vector<Curve> curves(kKeys.size(), Curve(kStretches));
  std::int64_t steps = 0;
  io::read_metrics(metrics, kKeys, [&](std::int64_t step, std::span<const double> values) {
    ++steps;
    for (std::size_t i = 0; i < kKeys.size(); ++i) {
      if (std::isfinite(values[i])) curves[i].add({static_cast<double>(step), values[i]});
    }
  });
  if (steps == 0) problem = metrics + ": it has no step yet";
  DrawnRun run{name, {}};
  for (std::size_t i = 0; i < kKeys.size(); ++i) run.curves[i] = curves[i].points();
  return run;
}

/// The runs of folders or metrics.jsonl files. Of several paths (a shell's runs/*), those that are not a run or have no
/// step yet are skipped with a note; if none is left, the first path is an error.
std::vector<DrawnRun> read_runs(const std::vector<std::string>& paths) {
  std::vector<DrawnRun> runs;
  std::vector<std::string> skipped;
  std::string first_problem;
  for (const auto& given : paths) {
    const std::string path = io::without_trailing_slash(given);
    const io::PathKind kind = io::path_kind(path);
    const std::string metrics = kind == io::PathKind::folder ? path + "/" + io::kMetricsFile : path;
    std::string problem;
    if (io::path_kind(metrics) == io::PathKind::file) {
      DrawnRun run = read_run(path, metrics, problem);
      if (problem.empty()) runs.push_back(std::move(run));
    } else {
      problem = metrics + ": no such file; accepted: the folder of a run, or its " + io::kMetricsFile;
      if (kind == io::PathKind::nothing) throw Error(Failure::input, problem);
    }
    if (problem.empty()) continue;
    skipped.push_back(escaped(path));
    if (first_problem.empty()) first_problem = problem;
  }
  if (runs.empty()) throw Error(Failure::input, first_problem);
  if (!skipped.empty()) std::cerr << fmt::format("note: left out, no run with a step: {}\n", fmt::join(skipped, ", "));
  return runs;
}

void send_rows(const DrawnRun& run, std::size_t index, io::PipedProgram& gnuplot) {
  for (std::size_t i = 0; i < kKeys.size(); ++i) {
    if (run.curves[i].empty()) continue;
    std::string rows = fmt::format("$run{}_{} << end_of_run\n", index, i);
    for (const auto& point : run.curves[i]) rows += fmt::format("{} {}\n", point.x, point.y);
    gnuplot.write(rows + "end_of_run\n");
  }
}

/// The last parts of the runs' paths, or the paths if two of these are equal.
std::vector<std::string> names_of(const std::vector<DrawnRun>& runs) {
  std::vector<std::string> names;
  std::set<std::string> known;
  for (const DrawnRun& run : runs) {
    names.push_back(std::filesystem::path(run.name).filename().string());
    known.insert(names.back());
  }
  if (known.size() == runs.size()) return names;
  names.clear();
  for (const DrawnRun& run : runs) names.push_back(run.name);
  return names;
}

/// "plot $run0_1 using 1:2 ..., $run1_1 ..." of one quantity; "" if no run has it.
std::string panel(std::size_t quantity, const std::vector<DrawnRun>& runs, bool in_terminal) {
  const std::vector<std::string> names = names_of(runs);
  std::string lines;
  std::size_t points = 0;
  for (std::size_t i = 0; i < runs.size(); ++i) {
    const auto& curve = runs[i].curves[quantity];
    points = std::max(points, curve.size());
    if (curve.empty()) continue;
    lines += fmt::format("{} $run{}_{} using 1:2 with {} linetype {} {} title {}", lines.empty() ? "plot" : ",", i,
                         quantity, curve.size() == 1 ? "points" : "lines", i + 1,
                         in_terminal ? "" : report::gnuplot_color(i) + " lw 2", gnuplot_text(names[i]));
  }
  const bool from_zero = kQuantities[quantity].from_zero || points < 2;  // an axis needs an extent
  return lines.empty()
             ? ""
             : fmt::format("set title '{}'\nset yrange [{}:*]\n{}{}\n", kQuantities[quantity].title,
                           from_zero ? "0" : "*",
                           in_terminal ? "" : fmt::format("set ylabel '{}'\n", kQuantities[quantity].unit), lines);
}

/// `type`: svg or png; "": in the terminal.
void send_panels(const std::vector<DrawnRun>& runs, const std::string& type, io::PipedProgram& gnuplot) {
  constexpr int kWidth = 480, kHeight = 340;
  const bool in_terminal = type.empty();
  std::vector<std::string> panels;
  for (std::size_t quantity = 0; quantity < kKeys.size(); ++quantity) {
    if (const std::string text = panel(quantity, runs, in_terminal); !text.empty()) panels.push_back(text);
  }
  const auto count = static_cast<int>(panels.size());
  const int columns = in_terminal ? 1 : count == 4 ? 2 : count;
  const int rows = count / columns;
  gnuplot.write(in_terminal ? fmt::format("set terminal dumb noenhanced size {},{}\n", io::terminal_width(), 16 * rows)
                            : report::gnuplot_terminal(type, kWidth * columns, kHeight * rows));
  gnuplot.write("set encoding utf8\nset xlabel 'step'\nset offsets 0, 0, graph 0.05, 0\n");
  gnuplot.write(fmt::format("set multiplot layout {},{}\n", rows, columns));
  for (const auto& text : panels) gnuplot.write(text);
  gnuplot.write("unset multiplot\n");
}

void draw(const std::vector<DrawnRun>& runs, const std::string& type, io::PipedProgram& gnuplot) {
  for (std::size_t i = 0; i < runs.size(); ++i) send_rows(runs[i], i, gnuplot);
  send_panels(runs, type, gnuplot);
}

}  // namespace

void plot(const distributed::Environment& environment, const Arguments& arguments) {
  OptionParser parser("plot");
  std::vector<std::string> paths;
  std::string out;
  parser.add("runs", paths).required().at_least_values(1);
  parser.add("--out", out, "an SVG or PNG file instead of the terminal").type_name("FILE.svg|FILE.png");
  parser.parse(arguments);
  const std::string type = out.ends_with(".svg") ? "svg" : out.ends_with(".png") ? "png" : "";
  if (!out.empty() && type.empty()) {
    throw Error(Failure::deck, "--out " + out + ": accepted are names that end in .svg or .png",
                Error::Seen::by_all_ranks);
  }
  if (environment.rank() != 0) return;
  const std::vector<DrawnRun> runs = read_runs(paths);
  if (out.empty()) {
    return report::run_gnuplot(STDOUT_FILENO, [&](io::PipedProgram& gnuplot) { draw(runs, "", gnuplot); });
  }
  report::draw_into(out, [&](io::PipedProgram& gnuplot) { draw(runs, type, gnuplot); });
  std::cout << escaped(out) << ": " << runs.size() << (runs.size() == 1 ? " run" : " runs") << std::endl;
}

}  // namespace kozero::commands
