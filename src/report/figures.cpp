// SPDX-FileCopyrightText: The KoZeRO authors
// SPDX-License-Identifier: Apache-2.0
// figures.cpp: gnuplot's commands for each figure, and its SVG for the page.
#include <fmt/format.h>
#include <algorithm>
#include <array>
#include <cmath>
#include <filesystem>
#include <limits>
#include <set>

#include <kozero/report/gnuplot.hpp>
#include "io/posix/file.hpp"
#include "io/posix/readable.hpp"
#include "src/report/figures.hpp"

namespace kozero::report {
namespace {

constexpr std::size_t kMostLines = 8;  // with a color each
constexpr std::size_t kMostBars = 40;
constexpr int kWidth = 480, kHeight = 340, kHeightOfBars = 460;

struct Series {
  std::string name;
  RunData::Points points;
  bool is_dashed = false;  ///< a prediction, in the color of the series before
};

struct Axes {
  std::string x, y;
  bool is_log_x = false, from_zero = false, has_points = false;
  std::string tics = {};  ///< of x
};

std::string replaced(std::string text, const std::string& old, const std::string& by) {
  for (std::size_t at = 0; (at = text.find(old, at)) != std::string::npos; at += by.size())
    text.replace(at, old.size(), by);
  return text;
}

std::string lines_script(const Axes& axes, const std::vector<Series>& series) {
  std::string script, plot;
  std::size_t number = 0, shown = 0;
  std::set<double> xs, ys;
  double least = std::numeric_limits<double>::infinity(), most = 0.0, low = least, high = 0.0;
  for (const Series& one : series) {
    if (one.points.empty() || (one.points.size() == 1 && !axes.has_points)) continue;
    script += fmt::format("$d{} << end_of_data\n", number);
    for (const auto& point : one.points) {
      script += fmt::format("{:.10g} {:.7g}\n", point.x, point.y);
      if (xs.size() < 2) xs.insert(point.x);
      if (ys.size() < 2) ys.insert(point.y);
      low = std::min(low, point.x);
      high = std::max(high, point.x);
      least = std::min(least, point.y);
      most = std::max(most, point.y);
    }
    script += "end_of_data\n";
    if (!one.is_dashed) ++shown;
    const std::size_t index = std::max<std::size_t>(shown, 1) - 1;
    const bool with_points = !one.is_dashed && (axes.has_points || one.points.size() == 1);
    plot += fmt::format("{}$d{} using 1:2 with {} {} lw {} dt {} {} {}", plot.empty() ? "plot " : ", ", number,
                        with_points ? "linespoints" : "lines", gnuplot_color(index), one.is_dashed ? 1 : 2,
                        one.is_dashed ? 2 : 1, with_points ? fmt::format("pt {} ps 0.8", 4 + index) : "",
                        one.name.empty() ? "notitle" : "title " + gnuplot_text(one.name));
    ++number;
  }
  if (plot.empty()) return "";
  script += fmt::format("set xlabel {}\nset ylabel {}\n", gnuplot_text(axes.x), gnuplot_text(axes.y));
  if (axes.is_log_x) script += "set logscale x\n";
  if (axes.is_log_x && xs.size() > 1) script += fmt::format("set xrange [{}:{}]\n", low / 1.15, high * 1.15);
  if (!axes.tics.empty()) script += "set xtics (" + axes.tics + ")\n";
  if (xs.size() == 1 && axes.is_log_x)
    script += fmt::format("set xrange [{}:{}]\n", 0.5 * *xs.begin(), 2.0 * *xs.begin());
  if (xs.size() == 1 && !axes.is_log_x)
    script += fmt::format("set xrange [{}:{}]\n", *xs.begin() - 1.0, *xs.begin() + 1.0);
  if (ys.size() == 1) script += fmt::format("set yrange [{}:{}]\n", *ys.begin() - 1.0, *ys.begin() + 1.0);
  constexpr double kManyfold = 50.0;  // a linear axis would show the small values as zero
  if (!axes.from_zero && least > 0.0 && most > kManyfold * least) script += "set logscale y\nset format y '%g'\n";
  script += ys.size() == 1 ? "" : axes.from_zero ? "set yrange [0:*]\n" : "set offsets 0, 0, graph 0.05, graph 0.05\n";
  return script + plot + "\n";
}

struct Bar {
  std::string name;
  std::vector<std::pair<std::string, double>> parts;
  double mark = kNone;
  std::string group = {};  ///< bars of one group stand together, below its name
};

/// The names of the parts that a bar has.
std::vector<std::string> names_of_parts(const std::vector<Bar>& bars) {
  std::vector<std::string> names;
  for (const Bar& bar : bars) {
    for (const auto& [name, size] : bar.parts) {
      if (size > 0.0 && std::find(names.begin(), names.end(), name) == names.end()) names.push_back(name);
    }
  }
  return names;
}

/// A line of data: the bar's name, its parts, its mark.
std::string bar_line(const Bar& bar, const std::vector<std::string>& names) {
  std::string line = '"' + replaced(replaced(io::printable_line(bar.name), "\\", "/"), "\"", "'") + '"';
  for (const auto& name : names) {
    const auto part = std::find_if(bar.parts.begin(), bar.parts.end(), [&](const auto& p) { return p.first == name; });
    line += fmt::format(" {:.7g}", part == bar.parts.end() ? 0.0 : part->second);
  }
  return line + (std::isfinite(bar.mark) ? fmt::format(" {:.7g}\n", bar.mark) : " NaN\n");
}

/// Stacked bars, group by group, with a space between the groups.
std::string bars_script(const std::string& x, const std::string& y, const std::vector<Bar>& bars, const char* mark) {
  const std::vector<std::string> names = names_of_parts(bars);
  if (names.empty()) return "";
  std::string script, plot, marks;
  std::size_t place = 0, groups = 0;
  for (std::size_t first = 0, end = 0; first < bars.size(); first = end, ++groups) {
    place += first == 0 ? 0 : 1;
    script += fmt::format("$bars{} << end_of_data\n", groups);
    bool has_marks = false;
    for (end = first; end < bars.size() && bars[end].group == bars[first].group; ++end) {
      script += bar_line(bars[end], names);
      has_marks = has_marks || std::isfinite(bars[end].mark);
    }
    const auto middle = static_cast<double>(place) + static_cast<double>(end - first - 1) / 2.0;
    script += fmt::format("end_of_data\nset label {} at first {}, graph 1.05 center font ',12'\n",
                          gnuplot_text(bars[first].group), middle);
    plot += fmt::format("{}newhistogram '' at {}", groups == 0 ? "plot " : ", ", place);
    for (std::size_t i = 0; i < names.size(); ++i) {
      plot += fmt::format(", $bars{} using {}:xtic(1) with histograms {} {}", groups, i + 2, gnuplot_color(i),
                          groups == 0 ? "title " + gnuplot_text(names[i]) : "notitle");
    }
    if (has_marks) {
      marks += fmt::format(", $bars{} using ($0+{}):{} with points pt 2 ps 1.2 lw 2 lc rgb 'black' {}", groups, place,
                           names.size() + 2, marks.empty() ? "title " + gnuplot_text(mark) : "notitle");
    }
    place += end - first;
  }
  script += fmt::format("set xlabel {}\nset ylabel {}\nset yrange [0:*]\nset xrange [-0.8:{}]\n", gnuplot_text(x),
                        gnuplot_text(y), static_cast<double>(place) - 0.2);
  script += "set style histogram rowstacked\nset style fill solid\nset boxwidth 0.75\n";
  if (groups > 1) script += "set title offset 0,1\n";
  if (bars.size() > 1) script += "set xtics rotate by 90 right font ',11'\n";
  return script + plot + marks + "\n";
}

class Figures {
 public:
  Figures(const Study& study, const Findings& findings) : study_(study), findings_(findings) {}

  std::vector<Figure> all() {
    losses();
    if (study_.is_one_run()) run();
    links();
    parts();
    memory();
    scaling();
    return std::move(figures_);
  }

 private:
  void add(const char* id, const char* section, const std::string& title, const std::string& text,
           const std::string& script, int height = kHeight) {
    if (!script.empty()) figures_.push_back({id, section, title, text, script, height, ""});
  }

  /// The cases that have these points; of runs of equal losses one, if they are `joined`.
  [[nodiscard]] std::vector<std::size_t> with_losses(RunData::Points RunData::*points, bool joined) const {
    std::set<std::size_t> left_out;
    for (const auto& losses : findings_.losses) {
      for (std::size_t i = 1; joined && i < losses.equal.size(); ++i) left_out.insert(losses.equal[i]);
    }
    std::vector<std::size_t> cases;
    for (std::size_t i = 0; i < study_.cases.size(); ++i) {
      if (left_out.count(i) == 0 && !(study_.cases[i].run.*points).empty()) cases.push_back(i);
    }
    return cases;
  }

  /// One line for runs of equal losses; at most kMostLines lines.
  [[nodiscard]] std::vector<Series> loss_lines(RunData::Points RunData::*points, bool joined) const {
    std::vector<Series> lines;
    const std::vector<std::size_t> all = with_losses(points, joined);
    const std::size_t most = std::min(all.size(), kMostLines);
    for (std::size_t line = 0; line < most; ++line) {
      const std::size_t i = all[line * all.size() / most];
      const Case& one = study_.cases[i];
      std::string name = study_.is_one_run() ? "training"
                         : study_.is_sweep   ? values_in_words(one)
                                             : short_name(study_, one);
      for (const auto& losses : findings_.losses) {
        if (joined && losses.equal.size() > 1 && losses.equal[0] == i)
          name = fmt::format("{} runs, equal bits", losses.equal.size());
      }
      lines.push_back({name, one.run.*points});
    }
    if (study_.is_one_run() && points == &RunData::loss_steps)
      lines.push_back({"validation", study_.cases[0].run.val_steps});
    return lines;
  }

  /// "stage 3, 2.5 Gbit/s"
  [[nodiscard]] std::string values_in_words(const Case& one) const {
    std::string text;
    for (const Axis& axis : study_.axes) text += (text.empty() ? "" : ", ") + label_of(axis.key, one.value(axis.key));
    return text;
  }

  void add_losses(const char* id, const char* title, const char* x, const char* against,
                  RunData::Points RunData::*points, bool joined) {
    const std::size_t all = with_losses(points, joined).size();
    const std::string many =
        all > kMostLines
            ? fmt::format("; {} of {} runs are drawn, at even distances in the list of cases", kMostLines, all)
            : "";
    add(id, "loss", title, fmt::format("Training loss in nats per token against {}{}.", against, many),
        lines_script({x, "loss"}, loss_lines(points, joined)));
  }

  void losses() {
    add_losses("loss_steps", "Loss by steps", "step", "optimizer steps", &RunData::loss_steps, true);
    add_losses("loss_tokens", "Loss by tokens", "tokens", "tokens seen", &RunData::loss_tokens, true);
    add_losses("loss_time", "Loss by time", "seconds", "seconds since the first step", &RunData::loss_seconds, false);
  }

  void run() {
    const RunData& run = study_.cases[0].run;
    add("rate", "run", "Rate by steps", "Tokens per second of each step.",
        lines_script({"step", "tokens/s", false, true}, {{"", run.rate_steps}}));
    add("learning_rate", "run", "Learning rate", "The learning rate of each step.",
        lines_script({"step", "learning rate", false, true}, {{"", run.lr_steps}}));
    add("gradient_norm", "run", "Gradient norm", "The norm of the whole gradient before clipping.",
        lines_script({"step", "norm", false, true}, {{"", run.norm_steps}}));
  }

  void links() {
    std::vector<const Map*> maps;
    for (const Map& map : findings_.maps) {
      if (map.is_of_links()) maps.push_back(&map);
    }
    if (maps.empty()) return;
    const std::size_t most = std::max<std::size_t>(kMostLines / maps[0]->cells.size(), 1);
    while (maps.size() > most) maps.erase(maps.begin());  // those of the most ranks stay
    std::erase_if(maps, [](const Map* map) {              // one rank sends nothing
      return map->where.count("ranks") != 0 && map->where.at("ranks") == "1";
    });
    std::vector<Series> rates, seconds, ratios;
    const double limit =
        3.0 *
        number_of(maps.empty() || maps[0]->columns.size() < 2 ? "1" : maps[0]->columns[maps[0]->columns.size() - 2]);
    std::string tics;
    for (const Map* map : maps) {
      for (std::size_t row = 0; row < map->cells.size(); ++row) {
        const std::string where = maps.size() > 1 ? label_of(map->where) + ", " : "";
        Series rate{where + label_of(map->rows->key, map->rows->values[row]), {}};
        Series communication = rate, ratio = rate;
        tics.clear();
        for (std::size_t i = 0; i < map->columns.size(); ++i) {
          const double value = number_of(map->columns[i]);
          const double x = value > 0.0 ? value : limit;
          const std::string label = value > 0.0 ? fmt::format("{:g}", value) : "no limit";
          tics += fmt::format("{}'{}' {}", tics.empty() ? "" : ", ", label, x);
          const Measured& cell = map->cells[row][i];
          if (cell.runs == 0) continue;
          rate.points.push_back({x, cell.rate});
          communication.points.push_back({x, 1e3 * cell.communication});
          if (map->cells[0][i].runs > 0) ratio.points.push_back({x, cell.rate / map->cells[0][i].rate});
        }
        rates.push_back(rate);
        seconds.push_back(std::move(communication));
        ratios.push_back(std::move(ratio));
        for (const SlowLinks& links : findings_.slow_links) {
          if (!rate.points.empty() && links.where == map->where &&
              links.label == label_of(map->rows->key, map->rows->values[row]))
            rates.push_back({"", links.predicted, true});
        }
      }
    }
    add("rate_links", "links", "Rate by bandwidth",
        "Tokens per second against the bandwidth of the links. Dashed: what the overlap condition predicts from the "
        "case without a limit.",
        lines_script({"Gbit/s per rank, logarithmic", "tokens/s", true, true, true, tics}, rates));
    add("communication_links", "links", "Communication by bandwidth",
        "Milliseconds per step in which rank 0 was in collectives, against the bandwidth of the links.",
        lines_script({"Gbit/s per rank, logarithmic", "ms per step", true, true, true, tics}, seconds));
    if (maps.empty() || maps[0]->cells.size() < 2) return;
    add("ratio_links", "links", "Rate against the first choice",
        "Tokens per second divided by those of the first line.",
        lines_script({"Gbit/s per rank, logarithmic", "ratio", true, false, true, tics}, ratios));
  }

  /// Bars of a sweep with several axes stand in groups by the first one.
  [[nodiscard]] std::size_t first_axis_of_bars() const { return study_.is_sweep && study_.axes.size() > 1 ? 1 : 0; }

  [[nodiscard]] Bar bar_of(const Case& one) const {
    Bar bar{short_name(study_, one), {}};
    if (first_axis_of_bars() == 0) return bar;
    bar.group = label_of(study_.axes[0].key, one.value(study_.axes[0].key));
    bar.name.clear();
    for (std::size_t i = 1; i < study_.axes.size(); ++i) {
      const std::string& key = study_.axes[i].key;
      const std::string label = label_of(key, one.value(key));
      bar.name += (i == 1 ? "" : "/") + (label == label_of("comm.throttle_gbit", "0") ? label : one.value(key));
    }
    return bar;
  }

  [[nodiscard]] std::string axis_names() const {
    std::string names;
    for (std::size_t i = first_axis_of_bars(); i < study_.axes.size(); ++i) {
      names += (names.empty() ? "" : " / ") + study_.axes[i].key;
    }
    return study_.is_one_run() ? "" : names.size() > 60 ? "case" : names;
  }

  template <class MakeBar>
  [[nodiscard]] std::vector<Bar> bars(const MakeBar& make) const {
    std::vector<Bar> result;
    for (const Case& one : study_.cases) {
      if (one.run.rows > 0 && result.size() < kMostBars) result.push_back(make(one));
    }
    return result;
  }

  void parts() {
    const auto rows = bars([&](const Case& one) {
      Bar bar = bar_of(one);
      bar.parts = parts_of_step(one.run);
      for (auto& part : bar.parts) part.second *= 1e3;
      return bar;
    });
    add("phases", "phases", "Time of a step",
        "Milliseconds of a step on rank 0. Communication is the time in collectives that computation did not hide.",
        bars_script(axis_names(), "ms per step", rows, ""), kHeightOfBars);
  }

  void memory() {
    constexpr double kMiB = 1024.0 * 1024.0;
    const auto rows = bars([&](const Case& one) {
      Bar bar = bar_of(one);
      bar.mark = one.run.planned_bytes / kMiB;
      for (const auto& [name, bytes] : one.run.memory) {
        if (name != "peak" && name != "resident" && name != "disk") bar.parts.emplace_back(name, bytes / kMiB);
      }
      return bar;
    });
    add("memory", "memory", "Memory by category",
        "MiB of the arrays of rank 0 as they were allocated; crosses: as planned before the start.",
        bars_script(axis_names(), "MiB per rank", rows, "planned"), kHeightOfBars);
  }

  void scaling() {
    const Axis* ranks = study_.axis("ranks");
    if (ranks == nullptr || ranks->values.size() < 2) return;
    std::vector<std::string> counts = ranks->values;
    std::sort(counts.begin(), counts.end(), [](const auto& a, const auto& b) { return number_of(a) < number_of(b); });
    std::vector<Series> lines;
    for (auto values : combinations(study_, {"ranks"})) {
      if (const auto link = values.find("comm.throttle_gbit"); link != values.end() && link->second != "0") continue;
      Series line{values.empty() ? "measured" : label_of(values), {}};
      double per_rank = kNone;
      for (const std::string& count : counts) {
        values["ranks"] = count;
        const Measured cell = measured(study_, values);
        if (cell.runs == 0) continue;
        const double now = cell.rate / number_of(count);
        if (std::isnan(per_rank)) per_rank = now;
        line.points.push_back({number_of(count), 100.0 * now / per_rank});
      }
      if (line.points.size() > 1 && lines.size() < kMostLines) lines.push_back(std::move(line));
    }
    std::string tics;
    for (const auto& count : counts) tics += fmt::format("{}{:g}", tics.empty() ? "" : ", ", number_of(count));
    add("scaling", "scaling", "Scaling efficiency",
        "Tokens per second and rank, in percent of those of the smallest number of ranks.",
        lines_script({"ranks", "%", false, true, true, tics}, lines));
  }

  const Study& study_;
  const Findings& findings_;
  std::vector<Figure> figures_;
};

/// gnuplot's SVG for the page: no background, colors of the theme, ids of this figure alone, no namespace.
std::string for_page(std::string svg, const Figure& figure) {
  const std::size_t begin = svg.find("<g id=\"gnuplot_canvas\">"), end = svg.rfind("</svg>");
  if (begin == std::string::npos || end == std::string::npos) return "";
  svg = svg.substr(begin, end - begin);
  if (const std::size_t back = svg.find("<rect x=\"0\" y=\"0\""); back != std::string::npos)
    svg.erase(back, svg.find("/>", back) + 2 - back);
  for (const char quote : {'\'', '"'}) {
    const std::string mark(1, quote);
    svg = replaced(std::move(svg), " id=" + mark, " id=" + mark + figure.id + "-");
    svg = replaced(std::move(svg), "xlink:href=" + mark + "#", "href=" + mark + "#" + figure.id + "-");
    svg = replaced(std::move(svg), mark + "black" + mark, mark + "currentColor" + mark);
    svg = replaced(std::move(svg), mark + "gray" + mark, mark + "var(--grid)" + mark);
  }
  svg = replaced(std::move(svg), "rgb(  0,   0,   0)", "currentColor");
  svg = replaced(std::move(svg), "url(#", "url(#" + figure.id + "-");
  for (std::size_t i = 0; i < kColors.size(); ++i) {
    const unsigned rgb = kColors[i];
    svg = replaced(std::move(svg), fmt::format("rgb({:3d}, {:3d}, {:3d})", rgb >> 16U, rgb >> 8U & 255U, rgb & 255U),
                   fmt::format("var(--c{})", i + 1));
  }
  return fmt::format(
      "<svg viewBox=\"0 0 {} {}\" role=\"img\" aria-labelledby=\"{}-title {}-text\">\n"
      "<title id=\"{}-title\">{}</title><desc id=\"{}-text\">{}</desc>\n{}</svg>\n",
      kWidth, figure.height, figure.id, figure.id, figure.id, figure.title, figure.id, figure.text, svg);
}

}  // namespace

std::vector<std::pair<std::string, double>> parts_of_step(const RunData& run) {
  const double known = run.communication() + RunData::in(run.phases, "update") + RunData::in(run.phases, "data");
  return {{"computation and the rest", std::max(0.0, run.step_s - known)},
          {"communication", run.communication()},
          {"update", RunData::in(run.phases, "update")},
          {"data", RunData::in(run.phases, "data")}};
}

std::string short_name(const Study& study, const Case& one) {
  if (!study.is_sweep) return std::filesystem::path(one.name).filename().string();
  std::string name;
  for (const Axis& axis : study.axes) name += (name.empty() ? "" : "/") + one.value(axis.key);
  return name;
}

std::vector<Figure> figures_of(const Study& study, const Findings& findings) { return Figures(study, findings).all(); }

void draw(std::vector<Figure>& figures, const std::string& folder) {
  for (Figure& figure : figures) {
    const std::string path = folder + "/" + figure.id;
    for (const char* type : {"svg", "png"}) {
      draw_into(path + "." + type, [&](io::PipedProgram& gnuplot) {
        gnuplot.write(gnuplot_terminal(type, kWidth, figure.height) + "set title " + gnuplot_text(figure.title) + "\n" +
                      figure.script);
      });
    }
    constexpr std::int64_t kMostSvg = std::int64_t{8} << 20;
    figure.svg = for_page(io::read_whole_file(path + ".svg", kMostSvg), figure);
  }
}

}  // namespace kozero::report
