// SPDX-FileCopyrightText: The KoZeRO authors
// SPDX-License-Identifier: Apache-2.0
// analysis.cpp: compares the cases of a study.
#include <fmt/format.h>
#include <algorithm>
#include <array>
#include <cmath>
#include <cstdlib>
#include <limits>
#include <numeric>
#include <set>

#include <kozero/core/error.hpp>
#include "src/report/analysis.hpp"
#include "src/report/verdict.hpp"

namespace kozero::report {
namespace {

using Values = std::map<std::string, std::string>;

constexpr const char* kLink = "comm.throttle_gbit";
constexpr double kClearLead = 0.05;  // of cases that ran once
constexpr double kLeastLead = 0.02;

/// 0 means no limit.
double gbit_of(const std::string& value) {
  const double gbit = number_of(value);
  return gbit > 0.0 ? gbit : std::numeric_limits<double>::infinity();
}

bool has_values(const Case& one, const Values& values) {
  return std::all_of(values.begin(), values.end(),
                     [&](const auto& wanted) { return one.value(wanted.first) == wanted.second; });
}

/// A case that has not run: from the measured one without a limit.
Measured predicted(const Study& study, Values values) {
  const auto planned = std::find_if(study.cases.begin(), study.cases.end(),
                                    [&](const Case& one) { return has_values(one, values) && one.state != "failed"; });
  if (planned == study.cases.end()) return {};  // no such case, or it failed
  const auto link = values.find(kLink);
  const double gbit = link == values.end() ? std::numeric_limits<double>::infinity() : gbit_of(link->second);
  if (link != values.end()) link->second = "0";
  for (const Case& one : study.cases) {
    if (!std::isfinite(gbit) || !one.is_measured() || !has_values(one, values)) continue;
    const double step_s = predicted_step_s(one.run, gbit);
    return {one.run.tokens_per_s * one.run.step_s / step_s, step_s, kNone, 0.0, 0, true};
  }
  return {};
}

const Axis* compared_axis(const Study& study) {
  if (const Axis* stage = study.axis("zero.stage"); stage != nullptr && stage->values.size() > 1) return stage;
  for (const Axis& axis : study.axes) {
    if (axis.values.size() > 1 && axis.key != kLink && axis.key != "ranks") return &axis;
  }
  return nullptr;
}

const Axis* column_axis(const Study& study, const Axis& rows) {
  for (const char* key : {kLink, "ranks", "train.global_batch", "model.seq"}) {
    const Axis* axis = study.axis(key);
    if (axis != nullptr && axis->values.size() > 1 && axis != &rows) return axis;
  }
  for (const Axis& axis : study.axes) {
    if (axis.values.size() > 1 && &axis != &rows) return &axis;
  }
  return nullptr;
}

Map::Winner winner_of(const Map& map, std::size_t column) {
  Map::Winner winner;
  const Measured *best = nullptr, *second = nullptr;
  for (std::size_t row = 0; row < map.cells.size(); ++row) {
    const Measured& cell = map.cells[row][column];
    if (!(cell.rate > 0.0)) continue;
    winner.is_predicted = winner.is_predicted || cell.is_predicted;
    if (best == nullptr || cell.rate > best->rate) {
      second = best;
      best = &cell;
      winner.row = static_cast<int>(row);
    } else if (second == nullptr || cell.rate > second->rate) {
      second = &cell;
    }
  }
  if (second == nullptr) return {};
  winner.lead = best->rate / second->rate - 1.0;
  const bool is_repeated = best->runs > 1 && second->runs > 1;
  winner.is_clear = winner.lead > (is_repeated ? std::max({kLeastLead, best->spread, second->spread}) : kClearLead);
  return winner;
}

std::vector<Map> maps_of(const Study& study) {
  const Axis* rows = compared_axis(study);
  if (rows == nullptr) return {};
  const Axis* columns = column_axis(study, *rows);
  std::vector<Map> maps;
  for (const Values& where : combinations(study, {rows->key, columns == nullptr ? "" : columns->key})) {
    Map map{rows,
            columns == nullptr ? std::vector<std::string>{""} : columns->values,
            columns == nullptr ? "" : columns->key,
            where,
            {},
            {}};
    if (map.is_of_links())
      std::stable_sort(map.columns.begin(), map.columns.end(),
                       [](const auto& a, const auto& b) { return gbit_of(a) < gbit_of(b); });
    for (const std::string& row : rows->values) {
      map.cells.emplace_back();
      for (const std::string& column : map.columns) {
        Values values = where;
        values[rows->key] = row;
        if (columns != nullptr) values[columns->key] = column;
        const Measured cell = measured(study, values);
        map.cells.back().push_back(cell.runs > 0 ? cell : predicted(study, values));
      }
    }
    for (std::size_t column = 0; column < map.columns.size(); ++column) map.winners.push_back(winner_of(map, column));
    maps.push_back(std::move(map));
  }
  return maps;
}

/// The rate at which the predicted step is kSlowedDown times as long, by bisection of its logarithm.
double predicted_limit(const RunData& run) {
  double low = 1e-6, high = 1e6;
  const double limit = kSlowedDown * run.step_s;
  if (!(predicted_step_s(run, low) > limit)) return kNone;
  for (int i = 0; i < 100; ++i) {
    const double middle = std::sqrt(low * high);
    (predicted_step_s(run, middle) > limit ? low : high) = middle;
  }
  return high;
}

SlowLinks slow_links_of(const Study& study, const Map& map, std::size_t row) {
  SlowLinks result{label_of(map.rows->key, map.rows->values[row]), map.where, kNone, kNone, kNone, 0.0, {}};
  const Measured& free = map.cells[row].back();
  if (std::isfinite(gbit_of(map.columns.back())) || free.runs == 0) return result;
  double slower_gbit = kNone, slower_ratio = kNone;
  for (std::size_t i = 0; i + 1 < map.columns.size(); ++i) {
    const Measured& cell = map.cells[row][i];
    if (cell.runs == 0) continue;
    const double gbit = gbit_of(map.columns[i]), ratio = cell.step_s / free.step_s;
    if (std::isnan(result.slowest_gbit)) {
      result.slowest_gbit = gbit;
      result.loss_there = 1.0 - cell.rate / free.rate;
    }
    if (slower_ratio > kSlowedDown && ratio <= kSlowedDown) {  // log ratio is linear in log gbit
      const double part = std::log(slower_ratio / kSlowedDown) / std::log(slower_ratio / ratio);
      result.measured_gbit = slower_gbit * std::pow(gbit / slower_gbit, part);
    }
    slower_gbit = gbit;
    slower_ratio = ratio;
  }
  Values values = map.where;
  values[map.rows->key] = map.rows->values[row];
  values[map.column_key] = map.columns.back();
  for (const Case& one : study.cases) {
    if (!one.is_measured() || !has_values(one, values)) continue;
    result.predicted_gbit = predicted_limit(one.run);
    constexpr int kPoints = 24;
    const double slowest = gbit_of(map.columns.front()), span = gbit_of(map.columns[map.columns.size() - 2]) / slowest;
    for (int i = 0; i <= kPoints; ++i) {
      const double gbit = slowest * std::pow(span, static_cast<double>(i) / kPoints);
      result.predicted.push_back({gbit, one.run.tokens_per_s * one.run.step_s / predicted_step_s(one.run, gbit)});
    }
    break;
  }
  return result;
}

/// What decides the losses: runs of one key should have the same bits.
std::string loss_key(const RunData& run) {
  static const std::set<std::string> kNoMatter = {"data.cache", "train.eval_every", "train.eval_batches",
                                                  "train.recompute"};
  std::string key;
  for (const auto& [name, value] : run.deck) {
    const bool decides = name.starts_with("model.") || name.starts_with("data.") || name.starts_with("train.") ||
                         name.starts_with("optim.") || name == "run.seed" || name == "run.steps" ||
                         name == "run.products";
    if (decides && kNoMatter.count(name) == 0) key += name + "=" + value + "\n";
  }
  const auto is = [&](const char* name, const char* value) {
    const auto found = run.deck.find(name);
    return found != run.deck.end() && plain_value(found->second) == value;
  };
  const bool has_own_order = (is("comm.backend", "ring") || is("comm.backend", "nccl")) && !is("comm.exact", "true");
  const bool batch_follows_ranks = run.deck.count("train.accumulate") != 0 && !is("train.accumulate", "none");
  if (has_own_order || batch_follows_ranks || is("zero.accumulation", "local")) {
    key += fmt::format("on {} ranks, by {}\n", run.ranks, has_own_order ? run.deck.at("comm.backend") : "any order");
  }
  return key;
}

std::vector<EqualLosses> compare_losses(const Study& study) {
  std::map<std::string, std::vector<std::size_t>> groups;
  for (std::size_t i = 0; i < study.cases.size(); ++i) {
    const RunData& run = study.cases[i].run;
    if (run.rows > 0 && !run.deck.empty()) groups[loss_key(run)].push_back(i);
  }
  std::vector<EqualLosses> result;
  for (const auto& [key, members] : groups) {
    if (members.size() < 2) continue;
    EqualLosses group{{members[0]}, members.size(), 0, ""};
    const std::vector<double> losses = losses_of(study.cases[members[0]].folder);
    for (std::size_t i = 1; i < members.size(); ++i) {
      const Case& one = study.cases[members[i]];
      const std::int64_t step = first_other_loss(one.folder, losses);
      if (step == 0) group.equal.push_back(members[i]);
      if (step < 0) --group.compared;
      if (step > 0 && (group.first_step == 0 || step < group.first_step)) {
        group.first_step = step;
        group.first_name = one.name;
      }
    }
    if (group.compared > 1) result.push_back(std::move(group));
  }
  return result;
}

}  // namespace

Measured measured(const Study& study, const Values& values) {
  Measured result{0.0, 0.0, 0.0, 0.0, 0, false};
  double low = std::numeric_limits<double>::infinity(), high = 0.0;
  for (const Case& one : study.cases) {
    if (!one.is_measured() || !has_values(one, values)) continue;
    ++result.runs;
    result.rate += one.run.tokens_per_s;
    result.step_s += one.run.step_s;
    result.communication += one.run.communication();
    low = std::min(low, one.run.tokens_per_s);
    high = std::max(high, one.run.tokens_per_s);
  }
  if (result.runs == 0) return {};
  for (double* sum : {&result.rate, &result.step_s, &result.communication}) *sum /= result.runs;
  result.spread = (high - low) / result.rate;
  return result;
}

std::set<Values> combinations(const Study& study, const std::set<std::string>& left_out) {
  std::set<Values> result;
  for (const Case& one : study.cases) {
    Values values;
    for (const Axis& axis : study.axes) {
      if (left_out.count(axis.key) == 0) values[axis.key] = one.value(axis.key);
    }
    result.insert(std::move(values));
  }
  return result;
}

double number_of(const std::string& text) { return std::strtod(text.c_str(), nullptr); }

bool Map::is_of_links() const { return column_key == kLink; }

std::string label_of(const std::string& key, const std::string& value) {
  if (key == "zero.stage") return "stage " + value;
  if (key == "ranks") return value + (value == "1" ? " rank" : " ranks");
  if (key == kLink) return std::isfinite(gbit_of(value)) ? value + " Gbit/s" : "no limit";
  return key.empty() ? value : key + " = " + value;
}

std::string label_of(const Values& values) {
  std::string text;
  for (const auto& [key, value] : values) text += (text.empty() ? "" : ", ") + label_of(key, value);
  return text;
}

double predicted_step_s(const RunData& run, double gbit) {
  const bool overlaps = run.value("zero.overlap") != "false";
  const bool gathers_early = run.value("zero.stage") == "3";
  const double reduced = run.bytes("reduce_scatter"), gathered = run.bytes("all_gather");
  const double in_passes = run.phase("reduce_scatter") + (gathers_early ? run.phase("all_gather") : 0.0);
  const double passes = std::max(0.0, run.phase("forward_backward") - in_passes);
  const double hiding = !overlaps ? 0.0 : gathers_early ? passes : 2.0 / 3.0 * passes;
  const double hidden = overlaps ? reduced + (gathers_early ? gathered : 0.0) : 0.0;
  const double per_byte = 8.0 / (gbit * 1e9);
  return run.step_s - hiding + std::max(hiding, hidden * per_byte) + (reduced + gathered - hidden) * per_byte;
}

Findings analyze(const Study& study) {
  Findings findings;
  findings.maps = maps_of(study);
  for (const Map& map : findings.maps) {
    for (std::size_t row = 0; map.is_of_links() && row < map.cells.size(); ++row) {
      const SlowLinks found = slow_links_of(study, map, row);
      if (!std::isnan(found.slowest_gbit)) findings.slow_links.push_back(found);
    }
  }
  findings.losses = compare_losses(study);
  findings.verdict = verdict_of(study, findings);
  findings.facts = facts_of(study, findings);
  return findings;
}

}  // namespace kozero::report
