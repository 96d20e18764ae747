// SPDX-FileCopyrightText: The KoZeRO authors
// SPDX-License-Identifier: Apache-2.0
// gnuplot.hpp: curves of runs in bounded memory, and files that gnuplot draws.
//   Curve curve(240);    curve.add({step, loss});    draw_into("loss.svg", "set terminal svg\nplot ...\n");
// A curve keeps the lowest and the highest points of a bounded number of stretches, so memory and time of the drawing
// do not grow with the run.
#pragma once
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "io/posix/piped_program.hpp"

namespace kozero::report {

/// A stretch is a number of consecutive points, of which the lowest and the highest are kept; when there are too many
/// stretches, neighbors are joined.
class Curve {
 public:
  struct Point {
    double x = 0.0;
    double y = 0.0;
  };

  /// `stretches`: at most that many, an even number.
  explicit Curve(std::size_t stretches) : most_(stretches) {}

  /// A point with a larger x than those before.
  void add(Point point);
  /// In the order of x.
  [[nodiscard]] std::vector<Point> points() const;

 private:
  struct Stretch {
    Point low, high;
    void include(const Point& point);
  };

  void join_neighbors();

  std::size_t most_;
  std::vector<Stretch> stretches_;
  std::int64_t width_ = 1;
  std::int64_t points_in_last_ = 0;
};

/// The text in single quotes, on one line, escaped for gnuplot.
std::string gnuplot_text(const std::string& text);

/// Starts gnuplot with its default settings, lets `send` write its input, and waits for its end. `output`: a
/// descriptor. Throws Error(deck) with what to install if gnuplot is not on the PATH.
void run_gnuplot(int output, const std::function<void(io::PipedProgram&)>& send);

/// The same with the file at `path` as output; the file is complete or absent.
void draw_into(const std::string& path, const std::function<void(io::PipedProgram&)>& send);

}  // namespace kozero::report
