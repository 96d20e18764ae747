// SPDX-FileCopyrightText: The KoZeRO authors
// SPDX-License-Identifier: Apache-2.0
// figures.hpp: the figures of a report, drawn by gnuplot into SVG and PNG files, and as SVG for the page.
// In the page, colors are CSS variables (--c1 ... --c8, --grid) and currentColor, so figures follow the page's theme.
#pragma once
#include <string>
#include <vector>

#include "src/report/analysis.hpp"

namespace kozero::report {

struct Figure {
  std::string id;       ///< the files' name: "loss_steps"
  std::string section;  ///< the page's section: "loss", "links", "phases", "memory", "scaling", "run"
  std::string title;
  std::string text;    ///< what is shown, for the caption and for screen readers
  std::string script;  ///< gnuplot's commands, without a terminal
  int height = 340;    ///< of a width of 480
  std::string svg;     ///< for the page, set by draw()
};

/// Figures that the data have.
std::vector<Figure> figures_of(const Study& study, const Findings& findings);

/// Writes FOLDER/ID.svg and ID.png and sets `svg`. Throws Error(deck) without gnuplot.
void draw(std::vector<Figure>& figures, const std::string& folder);

/// Seconds of a step on rank 0: computation and the rest, exposed communication, update, data; their sum is the step.
std::vector<std::pair<std::string, double>> parts_of_step(const RunData& run);

/// Short names of cases, for axes: the values joined by "/", or the last part of a run's path.
std::string short_name(const Study& study, const Case& one);

}  // namespace kozero::report
