// SPDX-FileCopyrightText: The KoZeRO authors
// SPDX-License-Identifier: Apache-2.0
// gnuplot.hpp: curves of runs in bounded memory, and files that gnuplot draws.
//   Curve curve(240);    curve.add({step, loss});    draw_into("loss.svg", "set terminal svg\nplot ...\n");
// A curve keeps the lowest and the highest points of a bounded number of stretches, so memory and time of the drawing
// do not grow with the run.
#pragma once
#include <array>
#include <cstddef>
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

/// Colors of lines and bars, red, green and blue in 8 bits each. Contrast with white is at least 3; a report's page has
/// lighter ones for a dark background.
inline constexpr std::array<unsigned, 8> kColors = {0x0072b2, 0xc85200, 0x00805c, 0xb4508a,
                                                    0x946200, 0x5a4fcf, 0x8c564b, 0x5f6b6d};

/// "lc rgb '#0072b2'"
std::string gnuplot_color(std::size_t i);

/// gnuplot's terminal for a file's type, svg or png, and the look of all figures. PNG has twice as many pixels.
std::string gnuplot_terminal(const std::string& type, int width, int height);

/// The text in single quotes, on one line, escaped for gnuplot.
std::string gnuplot_text(const std::string& text);

/// Starts gnuplot with its default settings, lets `send` write its input, and waits for its end. `output`: a
/// descriptor. Throws Error(deck) with what to install if gnuplot is not on the PATH.
void run_gnuplot(int output, const std::function<void(io::PipedProgram&)>& send);

/// The same with the file at `path` as output; the file is complete or absent.
void draw_into(const std::string& path, const std::function<void(io::PipedProgram&)>& send);

}  // namespace kozero::report
