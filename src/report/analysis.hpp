// SPDX-FileCopyrightText: The KoZeRO authors
// SPDX-License-Identifier: Apache-2.0
// analysis.hpp: what the cases of a study show: the fastest choice, the cost of slow links, equal losses; and in words.
// The overlap condition: communication stays hidden while a unit's transfer is shorter than the computation beside it.
// A slower link is predicted from the measured case without a limit, by plan's rule (kozero/plan/network_delay.hpp).
#pragma once
#include <nlohmann/json.hpp>
#include <set>
#include <string>
#include <vector>

#include "src/report/study.hpp"

namespace kozero::report {

/// A longer step than this multiple of the one without a limit counts as slowed down.
inline constexpr double kSlowedDown = 1.1;

/// Cases with the same values of all axes.
struct Measured {
  double rate = kNone;    ///< tokens per second: the mean of the cases' medians
  double step_s = kNone;  ///< seconds, likewise
  double communication = kNone;
  double spread = 0.0;  ///< (highest - lowest rate) / mean
  int runs = 0;         ///< 0: nothing was measured
  bool is_predicted = false;
  double sent = 0.0;  ///< bytes per step of rank 0, the mean
};

/// Rows: the choice that is compared (the stage); columns: a second axis; one map per combination of the other axes.
struct Map {
  const Axis* rows = nullptr;
  std::vector<std::string> columns;  ///< values of `column_key`, links from slow to fast
  std::string column_key;            ///< "" if there is no second axis
  std::map<std::string, std::string> where;
  std::vector<std::vector<Measured>> cells;  ///< by row and column
  struct Winner {
    int row = -1;               ///< -1: fewer than two cells have a rate
    double lead = 0.0;          ///< over the second, 0.05 for 5 %
    bool is_clear = false;      ///< the lead is larger than the spread, 5 % if each case ran once
    bool is_predicted = false;  ///< the winner or a cell that it was compared with
  };
  std::vector<Winner> winners;  ///< by column

  [[nodiscard]] bool is_of_links() const;
};

/// How a row of a map slows down on slow links, against itself without a limit or against another row.
struct SlowLinks {
  std::string label;    ///< "stage 3"
  std::string against;  ///< "stage 2"; "": no limit
  std::map<std::string, std::string> where;
  double measured_gbit = kNone;   ///< where the step is kSlowedDown times as long, interpolated
  double predicted_gbit = kNone;  ///< by the overlap condition
  double slowest_gbit = kNone;    ///< the slowest measured link
  double loss_there = 0.0;        ///< of the rate, against the other
  RunData::Points predicted;      ///< tokens per second by Gbit/s, by the overlap condition
};

/// Runs whose losses should be equal: model, data, batch, optimizer and seed are.
struct EqualLosses {
  std::vector<std::size_t> equal;  ///< cases with the bits of the first one, and that one
  std::size_t compared = 0;
  std::int64_t first_step = 0;  ///< the first step at which one differs; 0: none does
  std::string first_name;
};

/// Model states of the most ranks, beside the memory that was free when the sweep began.
struct Room {
  std::int64_t ranks = 0;                    ///< 0: unknown
  double bytes = 0.0;                        ///< of memory per rank
  std::map<std::string, double> parameters;  ///< by stage: whose weights, gradients and optimizer state have room
};

struct Findings {
  std::vector<Map> maps;
  std::vector<SlowLinks> slow_links;
  std::vector<EqualLosses> losses;
  Room room;
  std::vector<std::string> sentences;  ///< of the verdict, the most important one first
  nlohmann::ordered_json facts;
};

Findings analyze(const Study& study);

/// The number that a text begins with; 0 if it begins with none.
double number_of(const std::string& text);

/// "stage 2", "2 ranks", "0.5 Gbit/s", "no limit", "optim.lr = 0.001".
std::string label_of(const std::string& key, const std::string& value);
std::string label_of(const std::map<std::string, std::string>& values);

/// Of the cases with these values; other axes do not matter.
Measured measured(const Study& study, const std::map<std::string, std::string>& values);

/// The values of the axes, without those of `left_out`, that occur.
std::set<std::map<std::string, std::string>> combinations(const Study& study, const std::set<std::string>& left_out);

/// Seconds of a step of this run, which had no limit, on a link of `gbit`, 0 for none.
double predicted_step_s(const RunData& run, double gbit);

}  // namespace kozero::report
