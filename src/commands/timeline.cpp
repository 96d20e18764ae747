// SPDX-FileCopyrightText: The KoZeRO authors
// SPDX-License-Identifier: Apache-2.0
// timeline.cpp: the command `timeline`: overlap, waits, imbalance and operations of a recorded timeline.
//   overlap = (time of C and K) / (time of C)   C: a collective is under way, K: a kernel runs
//   exposed = time of W without K               W: the main thread is in a call for a collective
// C ends with the wait for a result, so a result that came earlier counts as under way until then. These are the
// definitions of Holistic Trace Analysis (get_comm_comp_overlap).
#include <fmt/format.h>
#include <algorithm>
#include <cstdint>
#include <filesystem>
#include <iostream>
#include <map>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <vector>

#include <kozero/commands/commands.hpp>
#include <kozero/core/error.hpp>
#include <kozero/program/arguments.hpp>
#include "io/posix/file.hpp"
#include "io/posix/readable.hpp"
#include "io/run/run_status.hpp"

namespace kozero::commands {

using program::JsonOutput;
using program::OptionParser;

namespace {

namespace fs = std::filesystem;
using Json = nlohmann::ordered_json;

constexpr std::int64_t kMostBytes = std::int64_t{256} << 20;  // of a file; the program writes at most 30 MB

/// A part of the time, in microseconds: disjoint intervals in order.
class Times {
 public:
  struct Interval {
    std::int64_t begin, end;
  };

  Times() = default;
  explicit Times(std::vector<Interval> all) {
    std::ranges::sort(all, {}, &Interval::begin);
    for (const Interval& each : all) {
      if (!intervals_.empty() && each.begin <= intervals_.back().end) {
        intervals_.back().end = std::max(intervals_.back().end, each.end);
      } else {
        intervals_.push_back(each);
      }
    }
  }

  [[nodiscard]] std::int64_t length() const {
    std::int64_t sum = 0;
    for (const Interval& each : intervals_) sum += each.end - each.begin;
    return sum;
  }
  [[nodiscard]] Times in(const Times& other) const {
    std::vector<Interval> common;
    auto b = other.intervals_.begin();
    for (auto a = intervals_.begin(); a != intervals_.end() && b != other.intervals_.end();) {
      const Interval both{std::max(a->begin, b->begin), std::min(a->end, b->end)};
      if (both.begin < both.end) common.push_back(both);
      a->end < b->end ? ++a : ++b;
    }
    return Times(std::move(common));
  }

 private:
  std::vector<Interval> intervals_;
};

struct Operation {
  std::int64_t calls = 0;
  std::int64_t microseconds = 0;
};

/// The numbers of one rank's file.
struct RankTimes {
  int rank = 0;
  std::string host, back_end;
  std::int64_t first_step = 0, last_step = 0, lost = 0;
  std::int64_t span = 0, kernels = 0, collectives = 0, overlapped = 0, exposed = 0;  ///< microseconds
  std::map<std::string, Operation> operations;                                       ///< kernels by name

  [[nodiscard]] std::int64_t steps() const { return last_step - first_step + 1; }
  /// Of the time of collectives; 0 if there was none.
  [[nodiscard]] double overlap() const {
    return collectives == 0 ? 0.0 : static_cast<double>(overlapped) / static_cast<double>(collectives);
  }
  [[nodiscard]] std::string name() const { return fmt::format("rank {}{}", rank, host.empty() ? "" : " on " + host); }
};

RankTimes times_of(const Json& file) {
  RankTimes times;
  const Json& ranks = file.at("distributedInfo");
  times.rank = ranks.at("rank").get<int>();
  times.back_end = ranks.at("backend").get<std::string>();
  times.host = file.at("host").get<std::string>();
  times.first_step = file.at("steps").at(0).get<std::int64_t>();
  times.last_step = file.at("steps").at(1).get<std::int64_t>();
  times.lost = file.at("lost").get<std::int64_t>();
  std::vector<Times::Interval> steps, kernels, collectives, calls;
  for (const Json& event : file.at("traceEvents")) {
    if (event.at("ph") != "X") continue;
    const auto begin = event.at("ts").get<std::int64_t>();
    const Times::Interval interval{begin, begin + event.at("dur").get<std::int64_t>()};
    const auto& category = event.at("cat").get_ref<const std::string&>();
    const auto& name = event.at("name").get_ref<const std::string&>();
    if (category == "kernel") {
      const bool is_collective = event.at("args").contains("Collective name");
      (is_collective ? collectives : kernels).push_back(interval);
      if (is_collective) continue;
      Operation& operation = times.operations[name];
      ++operation.calls;
      operation.microseconds += interval.end - interval.begin;
    } else if (category == "cpu_op") {
      calls.push_back(interval);
    } else if (name.starts_with("ProfilerStep")) {
      steps.push_back(interval);
    }
  }
  const Times in_steps(std::move(steps));
  const Times in_kernels(std::move(kernels));
  const Times in_collectives(std::move(collectives));
  const Times in_calls(std::move(calls));
  times.span = in_steps.length();
  times.kernels = in_kernels.length();
  times.collectives = in_collectives.length();
  times.overlapped = in_collectives.in(in_kernels).length();
  times.exposed = in_calls.length() - in_calls.in(in_kernels).length();
  return times;
}

/// RUN, RUN/timeline, or a folder in it; of several, the newest steps.
fs::path folder_of(const std::string& path) {
  const fs::path timelines = fs::path(path) / "timeline";
  fs::path newest = path;
  if (io::is_folder(timelines.string())) {
    newest.clear();
    for (const auto& entry : fs::directory_iterator(timelines)) {
      if (io::is_there((entry.path() / "rank_0.json").string())) newest = std::max(newest, entry.path());
    }
  }
  if (!newest.empty() && io::is_there((newest / "rank_0.json").string())) return newest;
  const bool is_run = io::holds_run(path);
  throw Error(Failure::input,
              path + (is_run ? ": the run has no timeline; log.timeline=rank0 or log.timeline=all records one"
                             : ": accepted is the folder of a run, or of one timeline in it, with rank_0.json"));
}

std::vector<RankTimes> read_ranks(const fs::path& folder) {
  std::vector<RankTimes> ranks;
  for (int rank = 0;; ++rank) {
    const std::string path = (folder / fmt::format("rank_{}.json", rank)).string();
    if (!io::is_there(path)) return ranks;
    try {
      ranks.push_back(times_of(Json::parse(io::read_whole_file(path, kMostBytes))));
    } catch (const nlohmann::json::exception&) {
      throw Error(Failure::input, path + ": not a timeline that this program wrote");
    }
  }
}

/// Sums over the ranks, the longest first.
std::vector<std::pair<std::string, Operation>> operations_of(const std::vector<RankTimes>& ranks) {
  std::map<std::string, Operation> sums;
  for (const RankTimes& rank : ranks) {
    for (const auto& [name, operation] : rank.operations) {
      sums[name].calls += operation.calls;
      sums[name].microseconds += operation.microseconds;
    }
  }
  std::vector<std::pair<std::string, Operation>> sorted(sums.begin(), sums.end());
  std::ranges::stable_sort(sorted,
                           [](const auto& a, const auto& b) { return a.second.microseconds > b.second.microseconds; });
  return sorted;
}

std::string percent(std::int64_t part, std::int64_t whole) {
  return whole == 0 ? "-" : fmt::format("{:.1f} %", 100.0 * static_cast<double>(part) / static_cast<double>(whole));
}

/// The longest kernel time, over the mean.
double imbalance_of(const std::vector<RankTimes>& ranks, const RankTimes& slowest) {
  std::int64_t sum = 0;
  for (const RankTimes& rank : ranks) sum += rank.kernels;
  return sum == 0 ? 1.0
                  : static_cast<double>(slowest.kernels) * static_cast<double>(ranks.size()) / static_cast<double>(sum);
}

void print(const fs::path& folder, const std::vector<RankTimes>& ranks, std::int64_t most) {
  const RankTimes& first = ranks.front();
  std::cout << fmt::format("{}: steps {} to {}, {}, recorded on {} {}\n", escaped(folder.string()), first.first_step,
                           first.last_step, first.back_end, ranks.size(), ranks.size() == 1 ? "rank" : "ranks");
  std::cout << fmt::format("{:<24}{:>12}{:>12}{:>14}{:>14}{:>12}\n", "", "ms per step", "kernels", "collectives",
                           "overlapped", "exposed");
  for (const RankTimes& rank : ranks) {
    std::cout << fmt::format("{:<24}{:>12.2f}{:>12}{:>14}{:>14}{:>12}\n", rank.name(),
                             1e-3 * static_cast<double>(rank.span) / static_cast<double>(rank.steps()),
                             percent(rank.kernels, rank.span), percent(rank.collectives, rank.span),
                             percent(rank.overlapped, rank.collectives), percent(rank.exposed, rank.span));
  }
  std::cout
      << "kernels, collectives (under way) and exposed (calls for collectives in which no kernel runs) are shares "
         "of the steps' time,\noverlapped is the share of the collectives' time in which a kernel runs\n";
  if (ranks.size() > 1) {
    const RankTimes& slowest = *std::ranges::max_element(ranks, {}, &RankTimes::kernels);
    std::cout << fmt::format("slowest      {}: its kernels take {:.1f} % longer than the ranks' mean\n", slowest.name(),
                             100.0 * (imbalance_of(ranks, slowest) - 1.0));
  }
  std::cout << fmt::format("\n{:<44}{:>16}{:>14}{:>12}\n", "operation, per rank", "calls per step", "ms per step",
                           "of step");
  const auto all_steps = static_cast<double>(first.steps()) * static_cast<double>(ranks.size());
  std::int64_t span = 0;
  for (const RankTimes& rank : ranks) span += rank.span;
  std::int64_t printed = 0;
  for (const auto& [name, operation] : operations_of(ranks)) {
    if (++printed > most) break;
    std::cout << fmt::format("{:<44}{:>16.1f}{:>14.3f}{:>12}\n", name, static_cast<double>(operation.calls) / all_steps,
                             1e-3 * static_cast<double>(operation.microseconds) / all_steps,
                             percent(operation.microseconds, span));
  }
  for (const RankTimes& rank : ranks) {
    if (rank.lost > 0) {
      std::cout << fmt::format("note         {}: {} later events did not fit; give a smaller log.timeline_steps\n",
                               rank.name(), rank.lost);
    }
  }
}

Json json_of(const fs::path& folder, const std::vector<RankTimes>& ranks) {
  Json rows = Json::array();
  for (const RankTimes& rank : ranks) {
    rows.push_back({{"rank", rank.rank},
                    {"host", rank.host},
                    {"span_us", rank.span},
                    {"kernels_us", rank.kernels},
                    {"collectives_us", rank.collectives},
                    {"overlapped_us", rank.overlapped},
                    {"exposed_us", rank.exposed},
                    {"overlap", rank.overlap()},
                    {"lost", rank.lost}});
  }
  Json operations = Json::array();
  for (const auto& [name, operation] : operations_of(ranks)) {
    operations.push_back({{"operation", name}, {"calls", operation.calls}, {"us", operation.microseconds}});
  }
  const RankTimes& slowest = *std::ranges::max_element(ranks, {}, &RankTimes::kernels);
  return {{"folder", folder.string()},
          {"backend", ranks.front().back_end},
          {"steps", {ranks.front().first_step, ranks.front().last_step}},
          {"ranks", rows},
          {"slowest", slowest.rank},
          {"imbalance", imbalance_of(ranks, slowest)},
          {"operations", operations}};
}

}  // namespace

void timeline(const distributed::Environment& environment, const Arguments& arguments) {
  OptionParser parser("timeline");
  std::string path;
  std::int64_t most = 15;
  JsonOutput json;
  parser.add("run", path).required();
  parser.add("--top", most, "operations to print").type_name("N").positive();
  json.add_to(parser);
  parser.parse(arguments);
  if (environment.rank() != 0) return;
  const fs::path folder = folder_of(path);
  const std::vector<RankTimes> ranks = read_ranks(folder);
  print(folder, ranks, most);
  json.print(json_of(folder, ranks));
}

}  // namespace kozero::commands
