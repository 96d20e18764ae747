// SPDX-FileCopyrightText: The KoZeRO authors
// SPDX-License-Identifier: Apache-2.0
// figures.cpp: gnuplot's commands for each figure, and its SVG for the page.
#include <fmt/format.h>
#include <algorithm>
#include <array>
#include <cmath>
#include <filesystem>
#include <set>

#include <kozero/report/gnuplot.hpp>
#include "io/posix/file.hpp"
#include "io/posix/readable.hpp"
#include "src/report/figures.hpp"

namespace kozero::report {
namespace {

// Contrast with white is at least 3; the page's style sheet has lighter ones for a dark background.
constexpr std::array<unsigned, 8> kColors = {0x0072b2, 0xc85200, 0x00805c, 0xb4508a,
                                             0x946200, 0x5a4fcf, 0x8c564b, 0x5f6b6d};
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

std::string color(std::size_t i) { return fmt::format("lc rgb '#{:06x}'", kColors[i % kColors.size()]); }

std::string lines_script(const Axes& axes, const std::vector<Series>& series) {
  std::string script, plot;
  std::size_t number = 0, shown = 0;
  std::set<double> xs, ys;
  for (const Series& one : series) {
    if (one.points.empty() || (one.points.size() == 1 && !axes.has_points)) continue;
    script += fmt::format("$d{} << end_of_data\n", number);
    for (const auto& point : one.points) {
      script += fmt::format("{:.10g} {:.7g}\n", point.x, point.y);
      if (xs.size() < 2) xs.insert(point.x);
      if (ys.size() < 2) ys.insert(point.y);
    }
    script += "end_of_data\n";
    if (!one.is_dashed) ++shown;
    const std::size_t index = std::max<std::size_t>(shown, 1) - 1;
    const bool with_points = !one.is_dashed && (axes.has_points || one.points.size() == 1);
    plot += fmt::format("{}$d{} using 1:2 with {} {} lw {} dt {} {} {}", plot.empty() ? "plot " : ", ", number,
                        with_points ? "linespoints" : "lines", color(index), one.is_dashed ? 1 : 2,
                        one.is_dashed ? 2 : 1, with_points ? fmt::format("pt {} ps 0.8", 4 + index) : "",
                        one.name.empty() ? "notitle" : "title " + gnuplot_text(one.name));
    ++number;
  }
  if (plot.empty()) return "";
  script += fmt::format("set xlabel {}\nset ylabel {}\n", gnuplot_text(axes.x), gnuplot_text(axes.y));
  if (axes.is_log_x) script += "set logscale x\n";
  if (!axes.tics.empty()) script += "set xtics (" + axes.tics + ")\n";
  if (xs.size() == 1 && axes.is_log_x)
    script += fmt::format("set xrange [{}:{}]\n", 0.5 * *xs.begin(), 2.0 * *xs.begin());
  if (xs.size() == 1 && !axes.is_log_x)
    script += fmt::format("set xrange [{}:{}]\n", *xs.begin() - 1.0, *xs.begin() + 1.0);
  if (ys.size() == 1) script += fmt::format("set yrange [{}:{}]\n", *ys.begin() - 1.0, *ys.begin() + 1.0);
  script += ys.size() == 1 ? "" : axes.from_zero ? "set yrange [0:*]\n" : "set offsets 0, 0, graph 0.05, graph 0.05\n";
  return script + plot + "\n";
}

struct Bar {
  std::string name;
  std::vector<std::pair<std::string, double>> parts;
  double mark = kNone;
};

std::string bars_script(const std::string& x, const std::string& y, const std::vector<Bar>& bars, const char* mark) {
  std::vector<std::string> names;
  for (const Bar& bar : bars) {
    for (const auto& [name, size] : bar.parts) {
      if (size > 0.0 && std::find(names.begin(), names.end(), name) == names.end()) names.push_back(name);
    }
  }
  if (names.empty()) return "";
  std::string script = "$bars << end_of_data\n";
  bool has_marks = false;
  for (const Bar& bar : bars) {
    script += '"' + replaced(replaced(io::printable_line(bar.name), "\\", "/"), "\"", "'") + '"';
    for (const auto& name : names) {
      const auto part =
          std::find_if(bar.parts.begin(), bar.parts.end(), [&](const auto& p) { return p.first == name; });
      script += fmt::format(" {:.7g}", part == bar.parts.end() ? 0.0 : part->second);
    }
    script += std::isfinite(bar.mark) ? fmt::format(" {:.7g}\n", bar.mark) : " NaN\n";
    has_marks = has_marks || std::isfinite(bar.mark);
  }
  script += fmt::format("end_of_data\nset xlabel {}\nset ylabel {}\nset yrange [0:*]\nset xrange [-0.8:{}]\n",
                        gnuplot_text(x), gnuplot_text(y), static_cast<double>(bars.size()) - 0.2);
  script += "set style histogram rowstacked\nset style fill solid\nset boxwidth 0.75\n";
  script += "set key maxrows 5\n";
  if (bars.size() > 1) script += "set xtics rotate by 90 right font ',11'\n";
  for (std::size_t i = 0; i < names.size(); ++i) {
    script += fmt::format("{}$bars using {}:xtic(1) with histograms {} title {}", i == 0 ? "plot " : ", ", i + 2,
                          color(i), gnuplot_text(names[i]));
  }
  if (has_marks)
    script += fmt::format(", $bars using 0:{} with points pt 2 ps 1.2 lw 2 lc rgb 'black' title {}", names.size() + 2,
                          gnuplot_text(mark));
  return script + "\n";
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

  /// One line for runs of equal losses; at most kMostLines lines.
  [[nodiscard]] std::vector<Series> loss_lines(RunData::Points RunData::*points, bool joined) const {
    std::vector<Series> lines;
    std::set<std::size_t> left_out;
    for (const auto& losses : findings_.losses) {
      for (std::size_t i = 1; joined && i < losses.equal.size(); ++i) left_out.insert(losses.equal[i]);
    }
    std::vector<std::size_t> drawn;
    for (std::size_t i = 0; i < study_.cases.size(); ++i) {
      if (left_out.count(i) == 0 && !(study_.cases[i].run.*points).empty()) drawn.push_back(i);
    }
    const std::size_t most = std::min(drawn.size(), kMostLines);
    for (std::size_t line = 0; line < most; ++line) {
      const std::size_t i = drawn[line * drawn.size() / most];
      const Case& one = study_.cases[i];
      std::string name = study_.is_one_run() ? "training" : short_name(study_, one);
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

  void losses() {
    const char* text = "Training loss in nats per token";
    const std::string many =
        study_.cases.size() > kMostLines ? fmt::format("; at most {} lines are drawn", kMostLines) : "";
    add("loss_steps", "loss", "Loss by steps", fmt::format("{} against optimizer steps{}.", text, many),
        lines_script({"step", "loss"}, loss_lines(&RunData::loss_steps, true)));
    add("loss_tokens", "loss", "Loss by tokens", fmt::format("{} against tokens seen{}.", text, many),
        lines_script({"tokens", "loss"}, loss_lines(&RunData::loss_tokens, true)));
    add("loss_time", "loss", "Loss by time", fmt::format("{} against seconds since the first step{}.", text, many),
        lines_script({"seconds", "loss"}, loss_lines(&RunData::loss_seconds, false)));
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
    std::vector<Series> rates, seconds;
    const double limit =
        3.0 *
        number_of(maps.empty() || maps[0]->columns.size() < 2 ? "1" : maps[0]->columns[maps[0]->columns.size() - 2]);
    std::string tics;
    for (const Map* map : maps) {
      for (std::size_t row = 0; row < map->cells.size(); ++row) {
        const std::string where = maps.size() > 1 ? label_of(map->where) + ", " : "";
        Series rate{where + label_of(map->rows->key, map->rows->values[row]), {}};
        Series communication = rate;
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
        }
        rates.push_back(rate);
        seconds.push_back(std::move(communication));
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
        lines_script({"Gbit/s per rank", "tokens/s", true, true, true, tics}, rates));
    add("communication_links", "links", "Communication by bandwidth",
        "Milliseconds per step in which rank 0 was in collectives, against the bandwidth of the links.",
        lines_script({"Gbit/s per rank", "ms per step", true, true, true, tics}, seconds));
  }

  [[nodiscard]] std::string axis_names() const {
    std::string names;
    for (const Axis& axis : study_.axes) names += (names.empty() ? "" : " / ") + axis.key;
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
      Bar bar{short_name(study_, one), parts_of_step(one.run)};
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
      Bar bar{short_name(study_, one), {}, one.run.planned_bytes / kMiB};
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
    const auto with = [&](const std::string& terminal) {
      return [&, terminal](io::PipedProgram& gnuplot) {
        gnuplot.write("set terminal " + terminal + "\nset encoding utf8\nset border 3\nset tics nomirror\n" +
                      "set grid ytics\nset key outside top center vertical maxrows 4 noinvert samplen 2 font "
                      "',12'\nset tics font ',12'\nset title " +
                      gnuplot_text(figure.title) + "\n" + figure.script);
      };
    };
    const std::string path = folder + "/" + figure.id;
    draw_into(path + ".svg", with(fmt::format("svg noenhanced size {},{} font 'sans-serif,14' background 'white'",
                                              kWidth, figure.height)));
    draw_into(path + ".png", with(fmt::format("pngcairo noenhanced size {},{} font 'sans-serif,14' fontscale 2 "
                                              "linewidth 2 pointscale 2 background 'white'",
                                              2 * kWidth, 2 * figure.height)));
    constexpr std::int64_t kMostSvg = std::int64_t{8} << 20;
    figure.svg = for_page(io::read_whole_file(path + ".svg", kMostSvg), figure);
  }
}

}  // namespace kozero::report
