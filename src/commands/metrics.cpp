// SPDX-FileCopyrightText: The KoZeRO authors
// SPDX-License-Identifier: Apache-2.0
// metrics.cpp: the command `metrics`: a run's metrics.jsonl as CSV, or its newest steps as a table.
// The file is read twice for CSV, line by line: rows may have different keys, and all columns are named at the top.
#include <fmt/format.h>
#include <algorithm>
#include <array>
#include <cmath>
#include <deque>
#include <functional>
#include <iostream>
#include <map>
#include <nlohmann/json.hpp>
#include <set>
#include <string>
#include <vector>

#include <kozero/commands/commands.hpp>
#include <kozero/core/error.hpp>
#include <kozero/program/arguments.hpp>
#include "io/posix/file.hpp"
#include "io/posix/readable.hpp"
#include "io/run/metrics.hpp"
#include "io/run/run_status.hpp"

namespace kozero::commands {

using program::OptionParser;

namespace {

using Json = nlohmann::ordered_json;

[[noreturn]] void refuse_without_rows(const std::string& path) {
  throw Error(Failure::input, path + ": it has no complete row of metrics");
}

/// RUN/metrics.jsonl, or the file itself.
std::string metrics_of(const std::string& path) {
  const std::string file = io::is_folder(path) ? path + "/" + io::kMetricsFile : path;
  if (io::is_there(file)) return file;
  throw Error(Failure::input, path + (io::holds_run(path) ? ": the run has no metrics; its first step was not done"
                                                          : ": accepted is the folder of a run, or a metrics.jsonl"));
}

/// Calls row(object) for each complete row of the file.
void for_each_row(const std::string& path, const std::function<void(const Json& row)>& row) {
  io::read_metrics_lines(path, [&](std::string_view line) {
    const Json object = Json::parse(line, nullptr, false);
    if (object.is_object() && object.contains("step")) row(object);
  });
}

/// Calls column(name, value) for each number of a row: "step", "seconds.update".
template <class Column>
void for_each_column(const Json& row, const Column& column) {
  for (const auto& [key, value] : row.items()) {
    if (!value.is_object()) {
      column(key, value);
    } else {
      for (const auto& [inner, number] : value.items()) column(key + "." + inner, number);
    }
  }
}

/// A number in round-trip digits, 1 or 0 for true or false, nothing for null.
std::string cell_of(const Json& value) {
  if (value.is_boolean()) return value.get<bool>() ? "1" : "0";
  return value.is_null() ? "" : value.dump();
}

/// `most`: the newest rows that are printed; 0: all. The columns are those of all rows.
void print_csv(const std::string& path, std::int64_t most) {
  std::vector<std::string> columns;
  std::set<std::string> known;
  std::int64_t rows = 0;
  for_each_row(path, [&](const Json& row) {
    ++rows;
    for_each_column(row, [&](const std::string& name, const Json& /*value*/) {
      if (known.insert(name).second) columns.push_back(name);
    });
  });
  if (columns.empty()) refuse_without_rows(path);
  std::map<std::string, std::size_t> places;
  for (std::size_t i = 0; i < columns.size(); ++i) {
    places[columns[i]] = i;
    std::cout << (i > 0 ? "," : "") << columns[i];
  }
  std::cout << '\n';
  std::vector<std::string> cells(columns.size());
  std::int64_t left_out = most == 0 ? 0 : std::max<std::int64_t>(rows - most, 0);
  for_each_row(path, [&](const Json& row) {
    if (left_out-- > 0) return;
    std::ranges::fill(cells, "");
    for_each_column(row, [&](const std::string& name, const Json& value) {
      if (const auto place = places.find(name); place != places.end()) cells[place->second] = cell_of(value);
    });
    for (std::size_t i = 0; i < cells.size(); ++i) std::cout << (i > 0 ? "," : "") << cells[i];
    std::cout << '\n';
  });
  std::cout << std::flush;
}

void print_table(const std::string& path, std::int64_t most) {
  constexpr std::array<std::string_view, 6> kKeys = {"loss", "val_loss", "grad_norm", "lr", "step_s", "tokens_per_s"};
  std::deque<std::pair<std::int64_t, std::vector<double>>> newest;
  io::read_metrics(path, kKeys, [&](std::int64_t step, std::span<const double> values) {
    newest.emplace_back(step, std::vector<double>(values.begin(), values.end()));
    if (std::ssize(newest) > most) newest.pop_front();
  });
  if (newest.empty()) refuse_without_rows(path);
  std::cout << fmt::format("{:>10}{:>11}{:>11}{:>11}{:>11}{:>11}{:>13}\n", "step", "loss", "val_loss", "grad_norm",
                           "lr", "step_s", "tokens_per_s");
  for (const auto& [step, values] : newest) {
    std::cout << fmt::format("{:>10}", step);
    for (std::size_t i = 0; i < values.size(); ++i) {
      const std::string text = std::isnan(values[i])    ? "-"
                               : kKeys[i] == "lr"       ? fmt::format("{:.3e}", values[i])
                               : i + 1 == values.size() ? fmt::format("{:.1f}", values[i])
                                                        : io::loss_text(values[i]);
      std::cout << fmt::format("{:>{}}", text, i + 1 == values.size() ? 13 : 11);
    }
    std::cout << '\n';
  }
  std::cout << std::flush;
}

}  // namespace

void metrics(const distributed::Environment& environment, const Arguments& arguments) {
  OptionParser parser("metrics");
  std::string path;
  bool as_csv = false;
  constexpr std::int64_t kMostInTable = 20;
  std::int64_t most = 0;
  parser.add("run", path).required();
  parser.add_flag("--csv", as_csv, "all numbers as CSV: one column each, named as in metrics.jsonl");
  parser.add("--last", most, "newest steps to print").type_name("N").default_text("20; with --csv all").positive();
  parser.parse(arguments);
  if (environment.rank() != 0) return;
  const std::string file = metrics_of(path);
  as_csv ? print_csv(file, most) : print_table(file, most == 0 ? kMostInTable : most);
}

}  // namespace kozero::commands
