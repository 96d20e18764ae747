// SPDX-FileCopyrightText: The KoZeRO authors
// SPDX-License-Identifier: Apache-2.0
// gnuplot.cpp: curves in bounded memory, and files that gnuplot draws.
#include <fmt/format.h>
#include <cstdlib>
#include <filesystem>

#include <kozero/core/error.hpp>
#include <kozero/report/gnuplot.hpp>
#include "io/posix/file.hpp"
#include "io/posix/readable.hpp"

namespace kozero::report {

void Curve::add(Point point) {
  if (stretches_.empty() || points_in_last_ == width_) {
    if (stretches_.size() == most_) join_neighbors();
    stretches_.push_back({point, point});
    points_in_last_ = 0;
  }
  stretches_.back().include(point);
  ++points_in_last_;
}

std::vector<Curve::Point> Curve::points() const {
  std::vector<Point> points;
  for (const auto& [low, high] : stretches_) {
    points.push_back(low.x <= high.x ? low : high);
    if (low.x != high.x) points.push_back(low.x <= high.x ? high : low);
  }
  return points;
}

void Curve::Stretch::include(const Point& point) {
  if (point.y < low.y) low = point;
  if (point.y > high.y) high = point;
}

void Curve::join_neighbors() {
  for (std::size_t i = 0; i < most_ / 2; ++i) {
    Stretch joined = stretches_[2 * i];
    joined.include(stretches_[2 * i + 1].low);
    joined.include(stretches_[2 * i + 1].high);
    stretches_[i] = joined;
  }
  stretches_.resize(most_ / 2);
  width_ *= 2;
}

std::string gnuplot_color(std::size_t i) { return fmt::format("lc rgb '#{:06x}'", kColors[i % kColors.size()]); }

std::string gnuplot_terminal(const std::string& type, int width, int height) {
  const std::string terminal =
      type == "png" ? fmt::format(
                          "pngcairo noenhanced size {},{} font 'sans-serif,14' fontscale 2 linewidth 2 "
                          "pointscale 2 background 'white'",
                          2 * width, 2 * height)
                    : fmt::format("svg noenhanced size {},{} font 'sans-serif,14' background 'white'", width, height);
  return "set terminal " + terminal +
         "\nset encoding utf8\nset border 3\nset tics nomirror\nset grid ytics\nset key outside bottom center "
         "horizontal noinvert samplen 2 height 1 font ',12'\nset tics font ',12'\n";
}

std::string gnuplot_text(const std::string& text) {
  std::string result = "'";
  for (const char letter : io::on_one_line(io::printable(text)))
    result += letter == '\'' ? "''" : std::string(1, letter);
  return result + "'";
}

void run_gnuplot(int output, const std::function<void(io::PipedProgram&)>& send) {
  ::setenv("LC_ALL", "C.UTF-8", 1);  // otherwise gnuplot warns of characters that it cannot print
  try {
    io::PipedProgram gnuplot("gnuplot", {"--default-settings", "-"}, output);
    send(gnuplot);
    gnuplot.finish();
  } catch (const Error& problem) {
    if (problem.failure() != Failure::deck) throw;
    throw Error(Failure::deck, std::string(problem.what()) +
                                   "; on Debian: apt-get install gnuplot-nox; with Spack: spack install gnuplot");
  }
}

void draw_into(const std::string& path, const std::function<void(io::PipedProgram&)>& send) {
  const std::string partial = io::partial_name(path);
  std::error_code ignored;
  std::filesystem::remove(partial, ignored);
  try {
    io::FileDescriptor file(partial, io::FileDescriptor::Use::create);
    run_gnuplot(file.number(), send);
    file.close();
  } catch (...) {
    std::filesystem::remove(partial, ignored);
    throw;
  }
  io::publish(path);
}

}  // namespace kozero::report
