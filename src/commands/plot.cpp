// SPDX-FileCopyrightText: The KoZeRO authors
// SPDX-License-Identifier: Apache-2.0
// plot.cpp: curves of runs, drawn by gnuplot in the terminal or into an SVG file.
// Each run's metrics.jsonl is read once, a line at a time, and streams into gnuplot as a block of data; panels follow
// for what any run has. Lines that are not whole JSON objects are left out: the last line of a running job may be half
// written.
#include <fmt/format.h>
#include <unistd.h>
#include <algorithm>
#include <array>
#include <cmath>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iostream>
#include <nlohmann/json.hpp>

#include <kozero/core/error.hpp>
#include "io/posix/file.hpp"
#include "io/posix/piped_program.hpp"
#include "io/posix/readable.hpp"
#include "io/run/run_folder.hpp"
#include "io/run/run_output.hpp"
#include "src/commands/arguments.hpp"

namespace kozero::commands {
namespace {

struct Curve {
  const char* key;  ///< of metrics.jsonl
  const char* title;
  bool from_zero;  ///< whether its axis begins at 0
};

constexpr std::array<Curve, 4> kCurves = {{{"loss", "loss", false},
                                           {"val_loss", "validation loss", false},
                                           {"lr", "learning rate", true},
                                           {"grad_norm", "gradient norm", true}}};

struct DrawnRun {
  std::string name;
  std::string metrics;                                ///< its file
  std::array<std::int64_t, kCurves.size()> points{};  ///< of each curve
};

/// A run's folder, or the file itself.
DrawnRun run_at(const std::string& given) {
  const std::string path = io::without_trailing_slash(given);
  const std::string file = io::is_folder(path) ? path + "/metrics.jsonl" : path;
  if (io::path_kind(file) == io::PathKind::file) return {path, file, {}};
  throw Error(Failure::input, file + ": no such file; accepted is the folder of a run, or its metrics.jsonl");
}

/// The text in single quotes, as gnuplot reads it back.
std::string quoted(const std::string& text) {
  std::string result = "'";
  for (const char letter : io::on_one_line(io::printable(text)))
    result += letter == '\'' ? "''" : std::string(1, letter);
  return result + "'";
}

/// "step loss val_loss lr grad_norm", NaN for what a step does not have; "" where the line is no step.
std::string row_of(const std::string& line, DrawnRun& run) {
  const auto json = nlohmann::json::parse(line, nullptr, /*allow_exceptions=*/false);
  if (!json.is_object() || !json.contains("step") || !json["step"].is_number_integer()) return "";
  std::string row = std::to_string(json["step"].get<std::int64_t>());
  for (std::size_t i = 0; i < kCurves.size(); ++i) {
    const auto value = json.find(kCurves[i].key);
    const bool is_there = value != json.end() && value->is_number() && std::isfinite(value->get<double>());
    if (is_there) ++run.points[i];
    row += is_there ? fmt::format(" {}", value->get<double>()) : " NaN";
  }
  return row + "\n";
}

void send_rows(DrawnRun& run, std::size_t index, io::PipedProgram& gnuplot) {
  std::ifstream file(run.metrics);
  if (!file) throw Error(Failure::input, run.metrics + ": cannot be read");
  gnuplot.write(fmt::format("$run{} << end_of_run\n", index));
  std::int64_t steps = 0;
  for (std::string line; std::getline(file, line);) {
    const std::string row = row_of(line, run);
    steps += row.empty() ? 0 : 1;
    gnuplot.write(row);
  }
  if (file.bad()) throw Error(Failure::input, run.metrics + ": cannot be read to its end");
  if (steps == 0) throw Error(Failure::input, run.metrics + ": it has no step yet");
  gnuplot.write("end_of_run\n");
}

/// "plot $run0 using 1:2 ..., $run1 ..." of one curve; "" where no run has it.
std::string panel(std::size_t curve, const std::vector<DrawnRun>& runs) {
  std::string lines;
  std::int64_t points = 0;
  for (std::size_t i = 0; i < runs.size(); ++i) {
    points = std::max(points, runs[i].points[curve]);
    if (runs[i].points[curve] == 0) continue;
    const char* style = runs[i].points[curve] == 1 ? "points" : "lines";
    lines += fmt::format("{} $run{} using 1:{} with {} linetype {} title {}", lines.empty() ? "plot" : ",", i,
                         curve + 2, style, i + 1, quoted(runs[i].name));
  }
  const bool from_zero = kCurves[curve].from_zero || points < 2;  // an axis needs an extent
  return lines.empty() ? ""
                       : fmt::format("set title '{}'\nset yrange [{}:*]\n{}\n", kCurves[curve].title,
                                     from_zero ? "0" : "*", lines);
}

void send_panels(const std::vector<DrawnRun>& runs, bool in_terminal, io::PipedProgram& gnuplot) {
  std::vector<std::string> panels;
  for (std::size_t curve = 0; curve < kCurves.size(); ++curve) {
    if (const std::string text = panel(curve, runs); !text.empty()) panels.push_back(text);
  }
  const std::size_t rows = in_terminal ? panels.size() : (panels.size() + 1) / 2;
  gnuplot.write(in_terminal ? fmt::format("set terminal dumb noenhanced size {},{}\n", io::terminal_width(), 16 * rows)
                            : fmt::format("set terminal svg noenhanced size 1000,{} background 'white'\n", 360 * rows));
  gnuplot.write("set encoding utf8\nset datafile missing 'NaN'\nset xlabel 'step'\nset offsets 0, 0, graph 0.05, 0\n");
  gnuplot.write(fmt::format("set multiplot layout {},{}\n", rows, in_terminal ? 1 : 2));
  for (const auto& text : panels) gnuplot.write(text);
  gnuplot.write("unset multiplot\n");
}

void draw(std::vector<DrawnRun> runs, bool in_terminal, int output) {
  ::setenv("LC_ALL", "C.UTF-8", 1);  // else gnuplot warns of characters that it does not print
  io::PipedProgram gnuplot("gnuplot", {"--default-settings", "-"}, output);
  for (std::size_t i = 0; i < runs.size(); ++i) send_rows(runs[i], i, gnuplot);
  send_panels(runs, in_terminal, gnuplot);
  gnuplot.finish();
}

void draw_into(const std::string& path, const std::vector<DrawnRun>& runs) {
  const std::string partial = io::partial_name(path);
  std::error_code ignored;
  std::filesystem::remove(partial, ignored);
  try {
    io::FileDescriptor file(partial, io::FileDescriptor::Use::create);
    draw(runs, false, file.number());
    file.close();
  } catch (...) {
    std::filesystem::remove(partial, ignored);
    throw;
  }
  io::publish(path);
}

}  // namespace

void plot(const dist::Environment& environment, const Arguments& arguments) {
  OptionParser parser("plot");
  std::vector<std::string> paths;
  std::string out;
  parser.add("runs", paths).required().at_least_values(1);
  parser.add("--out", out, "an SVG file instead of the terminal").type_name("FILE.svg");
  parser.parse(arguments);
  if (!out.empty() && !out.ends_with(".svg")) {
    throw Error(Failure::deck, "--out " + out + ": accepted are names that end in .svg", Error::Seen::by_all_ranks);
  }
  if (environment.rank() != 0) return;
  std::vector<DrawnRun> runs;
  for (const auto& path : paths) runs.push_back(run_at(path));
  try {
    if (out.empty()) return draw(runs, true, STDOUT_FILENO);
    draw_into(out, runs);
  } catch (const Error& problem) {
    if (problem.failure() != Failure::deck) throw;
    throw Error(Failure::deck, std::string(problem.what()) +
                                   "; on Debian: apt-get install gnuplot-nox; with Spack: spack install gnuplot");
  }
  std::cout << escaped(out) << ": " << runs.size() << (runs.size() == 1 ? " run" : " runs") << std::endl;
}

}  // namespace kozero::commands
