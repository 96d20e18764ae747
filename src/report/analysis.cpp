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
#include <kozero/plan/network_delay.hpp>
#include "io/posix/readable.hpp"
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

/// The first measured case with these values; nullptr: none.
const Case* measured_case(const Study& study, const Values& values) {
  const auto found = std::find_if(study.cases.begin(), study.cases.end(),
                                  [&](const Case& one) { return one.is_measured() && has_values(one, values); });
  return found == study.cases.end() ? nullptr : &*found;
}

/// A case that has not run: from the measured one without a limit.
Measured predicted(const Study& study, Values values) {
  const auto planned = std::find_if(study.cases.begin(), study.cases.end(),
                                    [&](const Case& one) { return has_values(one, values) && one.state != "failed"; });
  if (planned == study.cases.end()) return {};  // no such case, or it failed
  const auto link = values.find(kLink);
  const double gbit = link == values.end() ? std::numeric_limits<double>::infinity() : gbit_of(link->second);
  if (link != values.end()) link->second = "0";
  const Case* const one = std::isfinite(gbit) ? measured_case(study, values) : nullptr;
  if (one == nullptr) return {};
  const double step_s = predicted_step_s(one->run, gbit);
  return {one->run.tokens_per_s * one->run.step_s / step_s, step_s, kNone, 0.0, 0, true};
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

/// The rate at which the ratio of predicted steps falls to kSlowedDown, by bisection of the rate's logarithm.
template <class Ratio>
double predicted_limit(const Ratio& ratio) {
  double low = 1e-6, high = 1e6;
  if (!(ratio(low) > kSlowedDown && ratio(high) <= kSlowedDown)) return kNone;
  for (int i = 0; i < 100; ++i) {
    const double middle = std::sqrt(low * high);
    (ratio(middle) > kSlowedDown ? low : high) = middle;
  }
  return high;
}

/// `other`: the row to compare with; -1: this row without a limit, the last column.
SlowLinks slow_links_of(const Study& study, const Map& map, int of_row, int other) {
  const auto name = [&](std::size_t which) { return label_of(map.rows->key, map.rows->values[which]); };
  const auto row = static_cast<std::size_t>(of_row), against = static_cast<std::size_t>(std::max(other, 0));
  SlowLinks result{name(row), other < 0 ? "" : name(against), map.where, kNone, kNone, kNone, 0.0, {}};
  if (std::isfinite(gbit_of(map.columns.back()))) return result;
  double slower_gbit = kNone, slower_ratio = kNone;
  for (std::size_t i = 0; i + 1 < map.columns.size(); ++i) {
    const Measured& cell = map.cells[row][i];
    const Measured& base = other < 0 ? map.cells[row].back() : map.cells[against][i];
    if (cell.runs == 0 || base.runs == 0) continue;
    const double gbit = gbit_of(map.columns[i]), ratio = cell.step_s / base.step_s;
    if (std::isnan(result.slowest_gbit)) {
      result.slowest_gbit = gbit;
      result.loss_there = 1.0 - cell.rate / base.rate;
    }
    if (slower_ratio > kSlowedDown && ratio <= kSlowedDown) {  // log ratio is linear in log gbit
      const double part = std::log(slower_ratio / kSlowedDown) / std::log(slower_ratio / ratio);
      result.measured_gbit = slower_gbit * std::pow(gbit / slower_gbit, part);
    }
    slower_gbit = gbit;
    slower_ratio = ratio;
  }
  Values values = map.where;
  values[map.column_key] = map.columns.back();
  values[map.rows->key] = map.rows->values[row];
  const Case* const mine = measured_case(study, values);
  values[map.rows->key] = map.rows->values[against];
  const Case* const base = other < 0 ? mine : measured_case(study, values);
  if (mine == nullptr || base == nullptr) return result;
  result.predicted_gbit = predicted_limit([&](double gbit) {
    return predicted_step_s(mine->run, gbit) / (other < 0 ? mine->run.step_s : predicted_step_s(base->run, gbit));
  });
  constexpr int kPoints = 24;
  const double slowest = gbit_of(map.columns.front()), span = gbit_of(map.columns[map.columns.size() - 2]) / slowest;
  for (int i = 0; other < 0 && i <= kPoints; ++i) {
    const double gbit = slowest * std::pow(span, static_cast<double>(i) / kPoints);
    result.predicted.push_back({gbit, mine->run.tokens_per_s * mine->run.step_s / predicted_step_s(mine->run, gbit)});
  }
  return result;
}

/// Model states grow with the parameters; the other arrays do not count.
Room room_of(const Study& study) {
  const auto memory = study.program.find("free_memory");
  const auto of_host = memory == study.program.end() ? std::nullopt : io::bytes_of_text(memory->second);
  Room room;
  for (const Case& one : study.cases) {
    const RunData& run = one.run;
    const double states = RunData::in(run.memory, "parameters") + RunData::in(run.memory, "gradients") +
                          RunData::in(run.memory, "optimizer");
    if (!of_host || !(run.parameters > 0.0) || !(states > 0.0) || run.ranks < room.ranks) continue;
    const auto hosts = run.heading.find("hosts");  // "host1, host2"
    const auto more = hosts == run.heading.end() ? 0 : std::count(hosts->second.begin(), hosts->second.end(), ',');
    if (run.ranks > room.ranks)
      room = {run.ranks, *of_host * static_cast<double>(1 + more) / static_cast<double>(run.ranks), {}};
    room.parameters.emplace(run.value("zero.stage"), room.bytes * run.parameters / states);
  }
  return room;
}

/// What decides the losses: runs of one key should have the same bits.
std::string loss_key(const RunData& run) {
  static const std::set<std::string> kNoMatter = {"data.cache", "train.eval_every", "train.eval_batches",
                                                  "train.recompute"};
  std::string key;
  for (const auto& [name, value] : run.deck) {
    const bool decides = name.starts_with("model.") || name.starts_with("data.") || name.starts_with("train.") ||
                         name.starts_with("optim.") || name == "run.seed" || name == "run.steps" ||
                         name == "run.epochs" || name == "run.curriculum" || name == "run.products" ||
                         name == "run.tuning";
    if (decides && kNoMatter.count(name) == 0) key += name + "=" + value + "\n";
  }
  const auto is = [&](const char* name, const char* value) {
    const auto found = run.deck.find(name);
    return found != run.deck.end() && plain_value(found->second) == value;
  };
  const bool has_own_order = (is("comm.backend", "ring") || is("comm.backend", "nccl")) && !is("comm.exact", "true");
  const auto is_given = [&](const char* name) { return run.deck.count(name) != 0 && !is(name, "none"); };
  const bool batch_follows_ranks = is_given("train.accumulate") || is_given("train.batch_scaling");
  if (has_own_order || batch_follows_ranks || is("zero.accumulation", "local")) {
    key += fmt::format("on {} ranks, by {}\n", run.ranks, has_own_order ? run.deck.at("comm.backend") : "any order");
    if (has_own_order && is_given("zero.shard_group")) key += "in groups: " + run.deck.at("zero.shard_group") + "\n";
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
    for (const auto& [name, bytes] : one.run.bytes_sent) result.sent += bytes;
    low = std::min(low, one.run.tokens_per_s);
    high = std::max(high, one.run.tokens_per_s);
  }
  if (result.runs == 0) return {};
  for (double* sum : {&result.rate, &result.step_s, &result.communication, &result.sent}) *sum /= result.runs;
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
  const auto in_calls = [&](const char* name) {  // without waiting for other ranks, if that is known
    return RunData::in(run.phases, name) - RunData::in(run.phases, std::string(name) + "_waiting");
  };
  plan::Exchange exchange;
  exchange.stage = static_cast<int>(number_of(run.value("zero.stage")));
  exchange.overlap = run.value("zero.overlap") != "false";
  exchange.prefetches = run.value("zero.prefetch_units") != "0";
  exchange.reduced = RunData::in(run.bytes_sent, "reduce_scatter");
  exchange.gathered = RunData::in(run.bytes_sent, "all_gather");
  exchange.reductions = RunData::in(run.calls, "reduce_scatter");
  exchange.gathers = RunData::in(run.calls, "all_gather");
  exchange.sent_s = in_calls("reduce_scatter") + in_calls("all_gather");
  exchange.passes_s = RunData::in(run.phases, "forward_backward") - RunData::in(run.phases, "reduce_scatter") -
                      (exchange.stage == 3 ? RunData::in(run.phases, "all_gather") : 0.0);
  exchange.passes_s = std::max(exchange.passes_s, 0.0);
  return run.step_s + plan::network_delay(exchange, gbit, number_of(run.value("comm.latency_us"))).exposed;
}

Findings analyze(const Study& study) {
  Findings findings;
  findings.maps = maps_of(study);
  for (const Map& map : findings.maps) {
    for (int row = 0; map.is_of_links() && row < static_cast<int>(map.cells.size()); ++row) {
      const SlowLinks alone = slow_links_of(study, map, row, -1), crossing = slow_links_of(study, map, row, row - 1);
      if (!std::isnan(alone.slowest_gbit)) findings.slow_links.push_back(alone);
      if (row > 0 && !std::isnan(crossing.measured_gbit)) findings.slow_links.push_back(crossing);
    }
  }
  findings.losses = compare_losses(study);
  findings.room = room_of(study);
  findings.sentences = sentences_of(study, findings);
  findings.facts = facts_of(study, findings);
  return findings;
}

}  // namespace kozero::report
