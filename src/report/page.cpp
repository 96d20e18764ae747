// SPDX-FileCopyrightText: The KoZeRO authors
// SPDX-License-Identifier: Apache-2.0
// page.cpp: the report as HTML. All text from files is escaped; tables have captions and headers with scopes.
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <algorithm>
#include <cmath>
#include <map>
#include <numeric>
#include <set>

#include "io/posix/readable.hpp"
#include "src/report/page.hpp"
#include "src/report/verdict.hpp"

namespace kozero::report {
namespace {

constexpr std::size_t kMostRows = 500;    // of the table of cases
constexpr std::size_t kMostGroups = 20;   // of runs with equal decks
constexpr std::size_t kMostText = 4000;   // bytes of a sample text
constexpr std::size_t kMostReason = 300;  // bytes

constexpr const char* kStyle = R"(
:root{color-scheme:light dark;--back:#fff;--text:#1c1e21;--quiet:#555b61;--line:#c9ced3;--soft:#f2f4f6;--link:#0057a8;
--win:#d9f0e3;--bad:#a3160f;--grid:#b4b9be;--c1:#0072b2;--c2:#c85200;--c3:#00805c;--c4:#b4508a;--c5:#946200;
--c6:#5a4fcf;
--c7:#8c564b;--c8:#5f6b6d}
@media (prefers-color-scheme:dark){:root{--back:#16181b;--text:#e8eaed;--quiet:#a9b0b7;--line:#454b52;--soft:#22262b;
--link:#7fb8f0;--win:#174a32;--bad:#ff9c92;--grid:#5b626a;--c1:#58a9e6;--c2:#f58b4c;--c3:#3fbf95;--c4:#e88fc4;
--c5:#d9a94a;--c6:#a79cff;--c7:#d09a8d;--c8:#a8b4b6}}
*{box-sizing:border-box}
body{margin:0 auto;max-width:98rem;padding:1rem;background:var(--back);color:var(--text);
font:1rem/1.5 system-ui,sans-serif}
h1{font-size:1.1rem;color:var(--quiet);font-weight:600;margin:.2rem 0;overflow-wrap:anywhere}
h2{font-size:1.25rem;margin:2rem 0 .5rem;border-bottom:1px solid var(--line)}
.verdict{margin:.5rem 0 1rem;max-width:60rem;overflow-wrap:anywhere} .verdict p{font-size:1.2rem;line-height:1.4;
font-weight:600;margin:.2rem 0} .verdict ul{margin:.3rem 0;padding-left:1.2rem} .verdict li{margin:.15rem 0}
a{color:var(--link)} :focus-visible{outline:3px solid var(--link);outline-offset:2px}
.skip{position:absolute;left:-99rem} .skip:focus{position:static}
nav ul{display:flex;flex-wrap:wrap;gap:.25rem 1rem;list-style:none;padding:0}
nav a{display:inline-block;padding:.2rem 0}
.figures{display:grid;gap:1.5rem;grid-template-columns:repeat(auto-fill,minmax(min(100%,26rem),1fr))}
main>section>p{max-width:60rem}
figure{margin:0;min-width:0;max-width:40rem} figure svg{width:100%;height:auto;display:block}
figcaption,.quiet{color:var(--quiet);font-size:.9rem}
.scroll{overflow-x:auto} table{border-collapse:collapse;font-variant-numeric:tabular-nums;margin:.5rem 0}
caption{text-align:left;color:var(--quiet);font-size:.9rem;padding-bottom:.3rem}
th,td{padding:.3rem .6rem;border:1px solid var(--line);text-align:left;vertical-align:top}
th{background:var(--soft);font-weight:600} td.n{text-align:right;white-space:nowrap} .bad{color:var(--bad)}
.why{min-width:36rem;overflow-wrap:anywhere}
.win{background-color:var(--win);font-weight:600}
.predicted{background-image:repeating-linear-gradient(45deg,var(--line) 0 1px,transparent 1px 7px)}
pre{background:var(--soft);padding:.7rem;white-space:pre-wrap;overflow-wrap:anywhere}
dl{display:grid;grid-template-columns:max-content 1fr;gap:.15rem 1rem;margin:0} dt{color:var(--quiet)} dd{margin:0;
overflow-wrap:anywhere}
)";

std::string escaped_html(const std::string& text) {
  std::string result;
  for (const char letter : io::printable(text)) {
    switch (letter) {
      case '&':
        result += "&amp;";
        break;
      case '<':
        result += "&lt;";
        break;
      case '>':
        result += "&gt;";
        break;
      case '"':
        result += "&quot;";
        break;
      default:
        result += letter;
    }
  }
  return result;
}

/// The first bytes of a text, cut between characters.
std::string beginning(const std::string& text, std::size_t most) {
  if (text.size() <= most) return text;
  const std::string start = text.substr(0, most);
  return start.substr(0, io::utf8_prefix(start)) + " ...";
}

std::string number(double value, int digits) {
  return std::isfinite(value) ? fmt::format("{:.{}f}", value, digits) : "-";
}

std::string cell(const std::string& text) { return "<td class=\"n\">" + escaped_html(text) + "</td>"; }

class Table {
 public:
  Table(const std::string& caption, const std::vector<std::string>& columns) {
    html_ = fmt::format(
        "<div class=\"scroll\" role=\"region\" tabindex=\"0\" aria-label=\"{}\"><table><caption>{}</caption>"
        "<thead><tr>",
        escaped_html(caption), escaped_html(caption));
    for (const auto& column : columns) html_ += "<th scope=\"col\">" + escaped_html(column) + "</th>";
    html_ += "</tr></thead><tbody>\n";
  }
  void row(const std::string& header, const std::string& cells) {
    html_ += "<tr><th scope=\"row\">" + escaped_html(header) + "</th>" + cells + "</tr>\n";
  }
  [[nodiscard]] std::string html() const { return html_ + "</tbody></table></div>\n"; }

 private:
  std::string html_;
};

/// Whether the last column has no limit.
bool has_base(const Map& map) {
  return map.is_of_links() && label_of(map.column_key, map.columns.back()) == label_of(map.column_key, "0");
}

/// Whether the case was slower than the one on the slower link beside it, which the link cannot explain.
bool is_late(const Map& map, std::size_t row, std::size_t column) {
  constexpr double kLate = 0.95;
  if (!map.is_of_links() || column == 0) return false;
  const Measured &cell = map.cells[row][column], &slower = map.cells[row][column - 1];
  return cell.runs > 0 && slower.runs > 0 && cell.rate < kLate * slower.rate;
}

struct Section {
  std::string id, title, html;
};

class Page {
 public:
  Page(const Study& study, const Findings& findings, const std::vector<Figure>& figures)
      : study_(study), findings_(findings), figures_(figures) {}

  std::string html(const std::string& note) {
    const bool is_one = study_.is_one_run();
    add("loss", "Loss", losses() + figures("loss"));
    add("map", "Which choice is fastest", maps());
    add("links", "Bandwidth", links() + figures("links"));
    add("run", "Rates", figures("run"));
    add("phases", "Time of a step", (is_one ? phases() : "") + figures("phases"));
    add("memory", "Memory", (is_one ? memory() : "") + figures("memory"));
    add("scaling", "Scaling", figures("scaling"));
    if (!is_one) add("cases", "All cases", cases());
    if (!is_one) add("decks", "Differences of decks", decks());
    if (is_one) add("checkpoints", "Checkpoints", checkpoints());
    if (is_one) add("sample", "Sample text", sample());
    std::string menu, body;
    for (const Section& section : sections_) {
      menu += fmt::format("<li><a href=\"#{}\">{}</a></li>", section.id, section.title);
      body += fmt::format("<section aria-labelledby=\"{}\"><h2 id=\"{}\">{}</h2>\n{}</section>\n", section.id,
                          section.id, section.title, section.html);
    }
    const std::string title = escaped_html(study_.title);
    return fmt::format(
               "<!DOCTYPE html>\n<html lang=\"en\"><head><meta charset=\"utf-8\">\n{}\n"
               "<meta name=\"viewport\" content=\"width=device-width,initial-scale=1\">\n"
               "<title>{}: KoZeRO report</title><style>{}</style></head>\n<body>\n"
               "<a class=\"skip\" href=\"#main\">To the report</a>\n<header><h1>KoZeRO report: {}</h1>\n"
               "{}{}{}</header>\n",
               kGenerator, title, kStyle, title, verdict(), origin(),
               note.empty() ? "" : "<p class=\"bad\">" + escaped_html(note) + "</p>\n") +
           fmt::format("<nav aria-label=\"Sections\"><ul>{}</ul></nav>\n<main id=\"main\">\n{}</main>\n", menu, body) +
           "<footer><p class=\"quiet\">Written by kozero report. Times and rates are medians over the steps of a run "
           "without the first one.</p></footer>\n</body></html>\n";
  }

 private:
  void add(const char* id, const char* title, std::string html) {
    if (!html.empty()) sections_.push_back({id, title, std::move(html)});
  }

  /// The first sentence, and the others as a list.
  [[nodiscard]] std::string verdict() const {
    std::string others;
    for (std::size_t i = 1; i < findings_.sentences.size(); ++i) {
      others += "<li>" + escaped_html(findings_.sentences[i]) + "</li>\n";
    }
    return "<div class=\"verdict\"><p>" + escaped_html(findings_.sentences.front()) + "</p>\n" +
           (others.empty() ? "" : "<ul>" + others + "</ul>\n") + "</div>\n";
  }

  /// Machine, date, program and the command to repeat.
  [[nodiscard]] std::string origin() const {
    std::map<std::string, std::string> facts = study_.program;
    for (const Case& one : study_.cases) {  // of a run, where the sweep says nothing
      for (const auto& [key, fact] : one.run.heading) {
        if (key != "command" && key != "started" && key != "ranks") facts.emplace(key, fact);
      }
    }
    if (const auto commit = facts.find("commit"); commit != facts.end()) {
      const std::size_t changes = commit->second.find("+changes");
      commit->second = changes == std::string::npos ? commit->second + " (clean)"
                                                    : commit->second.substr(0, changes) + " (with uncommitted changes)";
    }
    facts.erase("command");
    facts.erase("started");
    if (facts.count("hosts") != 0) facts.erase("host");
    if (const auto memory = facts.extract("free_memory")) facts["free memory"] = memory.mapped();
    std::string html = "<dl>";
    const auto fact = [&html](const std::string& name, const std::string& text) {
      if (!text.empty()) html += fmt::format("<dt>{}</dt><dd>{}</dd>\n", escaped_html(name), escaped_html(text));
    };
    fact("started", study_.started);
    for (const char* first : {"host", "hosts", "processor", "cores", "free memory", "version", "commit"}) {
      if (const auto found = facts.extract(first)) fact(first, found.mapped());
    }
    for (const auto& [name, text] : facts) fact(name, text);
    html += "</dl>\n";
    if (!study_.command.empty()) html += "<p>To repeat:</p><pre>" + escaped_html(study_.command) + "</pre>\n";
    return html;
  }

  [[nodiscard]] std::string figures(const std::string& section) const {
    std::string html;
    for (const Figure& figure : figures_) {
      if (figure.section != section || figure.svg.empty()) continue;
      html += fmt::format(
          "<figure>{}<figcaption>{} <a href=\"{}.svg\" aria-label=\"{} as SVG\">SVG</a> <a href=\"{}.png\" "
          "aria-label=\"{} as PNG\">PNG</a></figcaption></figure>\n",
          figure.svg, figure.text, figure.id, figure.title, figure.id, figure.title);
    }
    return html.empty() ? "" : "<div class=\"figures\">\n" + html + "</div>\n";
  }

  [[nodiscard]] std::string losses() const {
    std::string html;
    for (std::size_t i = 0; i < std::min(findings_.losses.size(), kMostGroups); ++i)
      html += "<p>" + escaped_html(words_of(findings_.losses[i])) +
              " of equal model, data, batch, optimizer and seed.</p>\n";
    return html;
  }

  [[nodiscard]] std::string maps() const {
    std::string html;
    for (const Map& map : findings_.maps) {
      std::vector<std::string> columns = {map.rows->key};
      std::vector<std::size_t> order(map.columns.size());
      std::iota(order.begin(), order.end(), 0);
      if (has_base(map)) std::rotate(order.begin(), order.end() - 1, order.end());  // first, since it is compared with
      for (const std::size_t column : order)
        columns.push_back(map.column_key.empty() ? "tokens/s" : label_of(map.column_key, map.columns[column]));
      const std::string where = label_of(map.where);
      Table table("Tokens per second" + (where.empty() ? "" : ", " + where), columns);
      bool has_any = false;
      for (std::size_t row = 0; row < map.cells.size(); ++row) {
        std::string cells;
        for (const std::size_t column : order) {
          const Measured& cell = map.cells[row][column];
          const bool wins = map.winners[column].row == static_cast<int>(row);
          std::string text = cell.rate > 0.0 ? io::readable_count(cell.rate) : "-";
          if (cell.is_predicted) text += " predicted";
          if (is_late(map, row, column)) text += " *";
          if (wins) text += map.winners[column].is_clear ? " fastest" : " leads";
          cells += fmt::format("<td class=\"n{}{}\">{}</td>", wins ? " win" : "", cell.is_predicted ? " predicted" : "",
                               text);
          has_any = has_any || cell.rate > 0.0;
        }
        table.row(label_of(map.rows->key, map.rows->values[row]), cells);
      }
      if (has_any) html += table.html();
    }
    if (html.empty()) return "";
    return html +
           "<p class=\"quiet\">Hatched cells were not measured: the overlap condition predicts them from the case "
           "without a limit. \"Leads\": by less than 5 %, or within the spread of repeated cases. *: more than 5 % "
           "slower than on the slower link beside it, as when the machine was busy.</p>\n";
  }

  [[nodiscard]] std::string links() const {
    if (findings_.slow_links.empty()) return "";
    Table table("Bandwidth below which a step is 10 % longer than without a limit, or than another case's",
                {"case", "measured, Gbit/s", "predicted, Gbit/s", "slowest link, Gbit/s", "rate lost there"});
    for (const SlowLinks& links : findings_.slow_links) {
      const std::string where = label_of(links.where);
      const auto gbit = [](double value) { return std::isnan(value) ? "-" : fmt::format("{:.3g}", value); };
      table.row(links.label + (links.against.empty() ? "" : " against " + links.against) +
                    (where.empty() ? "" : ", " + where),
                cell(gbit(links.measured_gbit)) + cell(gbit(links.predicted_gbit)) + cell(gbit(links.slowest_gbit)) +
                    cell(fmt::format("{:.1f} %", 100.0 * links.loss_there)));
    }
    return table.html() +
           "<p class=\"quiet\">Measured: interpolated between the two neighboring rates; \"-\" if the measured rates "
           "do not enclose it. Predicted by the overlap condition: communication stays hidden while a unit's transfer "
           "is shorter than the computation beside it. The condition leaves out the first and the last unit, which "
           "nothing hides: for models of few blocks" +
           blocks() + " the predicted rates are too low.</p>\n";
  }

  /// " (these have 4)"; "" if the cases have different numbers or none.
  [[nodiscard]] std::string blocks() const {
    std::set<std::string> layers;
    for (const Case& one : study_.cases) {
      if (one.run.rows > 0) layers.insert(one.run.value("model.layers"));
    }
    return layers.size() != 1 || layers.begin()->empty() ? "" : " (these have " + escaped_html(*layers.begin()) + ")";
  }

  [[nodiscard]] std::string phases() const {
    const RunData& run = study_.cases[0].run;
    if (run.rows == 0) return "";
    Table table("Seconds of a step on rank 0", {"part", "ms", "of the step"});
    for (const auto& [name, seconds] : parts_of_step(run))
      table.row(name, cell(number(1e3 * seconds, 3)) + cell(number(100.0 * seconds / run.step_s, 1) + " %"));
    return table.html();
  }

  [[nodiscard]] std::string memory() const {
    const RunData& run = study_.cases[0].run;
    if (run.memory.empty()) return "";
    Table table("Bytes of rank 0 at the last step", {"category", "allocated"});
    for (const auto& [name, bytes] : run.memory)
      table.row(name, cell(io::readable_bytes(static_cast<std::int64_t>(bytes))));
    if (std::isfinite(run.planned_bytes))
      table.row("all arrays, planned", cell(io::readable_bytes(static_cast<std::int64_t>(run.planned_bytes))));
    return table.html();
  }

  [[nodiscard]] std::string cases() const {
    std::vector<std::string> columns = {"case"};
    for (const char* column : {"state", "tokens/s", "step, ms", "exposed communication, ms", "sent per step",
                               "arrays planned", "arrays allocated", "steps", "loss", "validation", "why"})
      columns.emplace_back(column);
    Table table("All cases; times and bytes of rank 0", columns);
    std::size_t rows = 0;
    for (const Case& one : study_.cases) {
      if (++rows > kMostRows) break;
      const RunData& run = one.run;
      double arrays = 0.0, sent = 0.0;
      for (const auto& [name, bytes] : run.memory) {
        if (name != "peak" && name != "resident" && name != "disk") arrays += bytes;
      }
      for (const auto& [name, bytes] : run.bytes_sent) sent += bytes;
      const auto bytes_text = [](double bytes) {
        return bytes > 0.0 ? io::readable_bytes(static_cast<std::int64_t>(bytes)) : std::string("-");
      };
      const bool has_rows = run.rows > 0;
      std::string why = one.why;
      if (run.bad_losses > 0)
        why += fmt::format("{}{} losses not finite, first at step {}", why.empty() ? "" : "; ", run.bad_losses,
                           run.first_bad_step);
      table.row(one.name,
                fmt::format("<td{}>{}</td>", one.state == "failed" ? " class=\"bad\"" : "", escaped_html(one.state)) +
                    cell(has_rows && run.tokens_per_s > 0.0 ? io::readable_count(run.tokens_per_s) : "-") +
                    cell(number(1e3 * run.step_s, 2)) + cell(has_rows ? number(1e3 * run.communication(), 2) : "-") +
                    cell(bytes_text(sent)) + cell(bytes_text(run.planned_bytes)) + cell(bytes_text(arrays)) +
                    cell(has_rows ? fmt::format("{}", run.last_step) : "-") + cell(number(run.last_loss, 4)) +
                    cell(number(run.last_val, 4)) + (why.empty() ? "<td>" : "<td class=\"why\">") +
                    escaped_html(beginning(why, kMostReason)) + "</td>");
    }
    const std::string rest =
        rows > kMostRows ? fmt::format("<p>{} further cases are not shown.</p>\n", study_.cases.size() - kMostRows)
                         : "";
    return table.html() + rest;
  }

  [[nodiscard]] std::string decks() const {
    std::map<std::string, std::map<std::string, int>> values;
    int decks = 0;
    for (const Case& one : study_.cases) {
      if (one.run.deck.empty()) continue;
      ++decks;
      for (const auto& [key, value] : one.run.deck) ++values[key][value];
    }
    Table table("Keys that differ between the decks, and the number of runs with each value", {"key", "values"});
    bool has_any = false;
    for (const auto& [key, list] : values) {
      if (key == "run.dir") continue;
      std::vector<std::string> words;
      int counted = 0;
      for (const auto& [value, count] : list) {
        counted += count;
        if (words.size() < 32) words.push_back(fmt::format("{} ({})", beginning(value, kMostReason), count));
      }
      if (counted < decks) words.push_back(fmt::format("not given ({})", decks - counted));
      if (words.size() < 2) continue;
      has_any = true;
      table.row(key, "<td>" + escaped_html(fmt::format("{}", fmt::join(words, ", "))) + "</td>");
    }
    return has_any ? table.html() : "";
  }

  [[nodiscard]] std::string checkpoints() const {
    std::string html;
    for (const auto& name : study_.cases[0].run.checkpoints) html += "<li>" + escaped_html(name) + "</li>";
    return html.empty() ? "" : "<ul>" + html + "</ul>\n";
  }

  [[nodiscard]] std::string sample() const {
    const std::string& text = study_.cases[0].run.sample;
    return text.empty() ? "" : "<pre>" + escaped_html(beginning(text, kMostText)) + "</pre>\n";
  }

  const Study& study_;
  const Findings& findings_;
  const std::vector<Figure>& figures_;
  std::vector<Section> sections_;
};

}  // namespace

std::string page_of(const Study& study, const Findings& findings, const std::vector<Figure>& figures,
                    const std::string& note) {
  return Page(study, findings, figures).html(note);
}

}  // namespace kozero::report
