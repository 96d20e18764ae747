// SPDX-FileCopyrightText: The KoZeRO authors
// SPDX-License-Identifier: Apache-2.0
// plan_report.hpp: the output of `plan`: tables of memory and time, advice, and the same as JSON.
#pragma once
#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include <kozero/plan/memory_plan.hpp>
#include <kozero/plan/step_time.hpp>
#include "io/deck/deck.hpp"

namespace kozero::commands {

/// The plan for one number of ranks, in all stages.
struct PlannedRanks {
  int count = 1;
  std::string backend;
  bool assumed = false;                 ///< comm.backend = auto, assumed since these ranks do not run
  std::vector<plan::MemoryPlan> plans;  ///< by stage
  std::int64_t reserve = 0;             ///< bytes per rank kept free of arrays
  plan::DeviceAndHost room;             ///< memory for arrays; 0: unknown
  plan::Rates rates;
};

/// A deck and its plans. `dropped`: offloading keys that the planned machine cannot serve, planned as "none".
struct PlanReport {
  const io::Deck& deck;
  std::vector<PlannedRanks> all;
  std::vector<std::string> dropped;

  /// The tables for one number of ranks, or totals for several.
  [[nodiscard]] std::string tables() const;
  /// For each number of ranks a line with the changes that make the deck fit, a line with a faster stage that fits too,
  /// and a line with groups of ranks that send less.
  [[nodiscard]] std::string advice() const;
  [[nodiscard]] nlohmann::ordered_json json() const;
};

/// "340 ms", "4.70 s", "18 h 36 min".
std::string duration_text(double seconds);

}  // namespace kozero::commands
