// SPDX-FileCopyrightText: The KoZeRO authors
// SPDX-License-Identifier: Apache-2.0
// study.cpp: reads a sweep's folder, or runs given one by one.
#include <fmt/format.h>
#include <algorithm>
#include <array>
#include <nlohmann/json.hpp>
#include <set>

#include <kozero/core/error.hpp>
#include "io/posix/file.hpp"
#include "io/run/metrics.hpp"
#include "io/run/run_folder.hpp"
#include "src/report/study.hpp"

namespace kozero::report {
namespace {

using Json = nlohmann::json;

constexpr const char* kSweepFile = "sweep.json";
constexpr std::int64_t kMostJson = std::int64_t{64} << 20;

/// Points of a curve, so that all curves of a page stay below some hundred kilobytes.
std::size_t points_for(std::size_t runs) { return std::clamp<std::size_t>(6000 / runs, 16, 480); }

std::string text_of(const Json& value) {
  if (value.is_object() && value.contains("name")) return text_of(value["name"]);  // an axis of tables
  return plain_value(value.is_string() ? value.get<std::string>() : value.dump());
}

std::string member(const Json& object, const char* key) {
  return object.contains(key) && !object[key].is_null() ? text_of(object[key]) : "";
}

Json read_json(const std::string& path) { return Json::parse(io::read_whole_file(path, kMostJson), nullptr, false); }

void read_end(const std::string& folder, Case& one) {
  one.state = "not run";
  try {
    if (io::is_there(folder + "/case.json")) {
      const Json end = read_json(folder + "/case.json");
      if (!end.is_object()) throw Error(Failure::input, "case.json is damaged");
      one.state = member(end, "state");
      one.why = member(end, "why");
      if (one.state == "failed" && one.why.empty()) one.why = "exit status " + member(end, "exit_status");
    } else if (io::holds_run(one.folder)) {
      one.state = "running";
    }
  } catch (const Error& problem) {
    one.state = "failed";
    one.why = problem.what();
  }
}

/// Keys in which the decks differ: those that matter first, others in alphabetical order.
void find_axes(Study& study) {
  static const std::set<std::string> kOfPlace = {"run.dir", "run.ranks", "run.threads", "log.every", "data.cache"};
  std::map<std::string, std::set<std::string>> found;
  for (auto& one : study.cases) {
    if (study.is_sweep && one.run.deck.empty()) continue;  // it has not run
    one.values["ranks"] = fmt::format("{}", one.run.ranks);
    found["ranks"].insert(one.values["ranks"]);
    for (const auto& [key, text] : one.run.deck) {
      if (kOfPlace.count(key) == 0) found[key].insert(one.values[key] = plain_value(text));
    }
  }
  std::vector<Axis> others;
  for (const auto& [key, values] : found) {
    if (values.size() < 2) continue;
    auto& axes = key == "zero.stage" || key == "ranks" || key == "comm.throttle_gbit" ? study.axes : others;
    axes.push_back({key, {}});
    for (const auto& one : study.cases) {
      auto& list = axes.back().values;
      const std::string value = one.value(key);
      if (!value.empty() && std::find(list.begin(), list.end(), value) == list.end()) list.push_back(value);
    }
  }
  std::reverse(study.axes.begin(), study.axes.end());  // zero.stage, ranks, comm.throttle_gbit
  study.axes.insert(study.axes.end(), others.begin(), others.end());
}

Study read_sweep(const std::string& folder) {
  const std::string path = folder + "/" + kSweepFile;
  const Json sweep = read_json(path);
  if (!sweep.is_object() || member(sweep, "kozero_sweep") != "1" || !sweep.contains("cases") || !sweep.contains("axes"))
    throw Error(Failure::input, path + ": damaged, or of another version; accepted: what `kozero sweep` writes");
  Study study{member(sweep, "name"), member(sweep, "command"), member(sweep, "started"), {}, true, {}, {}};
  try {
    const Json program = sweep.value("program", Json::object());
    for (const auto& [key, fact] : program.items()) study.program[key] = text_of(fact);
    bool has_tables = false;
    for (const Json& axis : sweep["axes"]) {
      study.axes.push_back({axis.at("key").get<std::string>(), {}});
      for (const Json& value : axis.at("values")) {
        study.axes.back().values.push_back(text_of(value));
        has_tables = has_tables || value.is_object();
      }
    }
    const std::size_t points = points_for(std::max<std::size_t>(sweep["cases"].size(), 1));
    for (const Json& planned : sweep["cases"]) {
      const std::string place = folder + "/" + planned.at("folder").get<std::string>();
      Case one;
      one.name = member(planned, "name");
      one.folder = place + "/run";
      for (const auto& [key, value] : planned.at("values").items()) one.values[key] = text_of(value);
      read_end(place, one);
      if (io::holds_run(one.folder)) one.run = read_run(one.folder, points);
      if (one.state == "running" && one.run.killed) one.state = "failed";
      const Json plan = planned.value("planned", Json::object());
      if (plan.contains("bytes_per_rank") && plan["bytes_per_rank"].is_number())
        one.run.planned_bytes = plan["bytes_per_rank"].get<double>();
      study.cases.push_back(std::move(one));
    }
    if (has_tables) {  // a table's name is no axis, the keys in it are
      study.axes.clear();
      find_axes(study);
    }
  } catch (const Json::exception& problem) {
    throw Error(Failure::input, fmt::format("{}: damaged: {}", path, problem.what()));
  }
  if (study.cases.empty()) throw Error(Failure::input, path + ": the sweep has no case");
  return study;
}

std::string state_of(const RunData& run) {
  if (run.killed) return "failed";
  const bool in_time = run.status.state == "preempted" && run.status.why.find("run.max_minutes") != std::string::npos;
  if (run.status.state == "finished" || in_time || (run.status.state.empty() && run.rows > 0)) return "done";
  return run.status.state.empty() ? "not run" : run.status.state;
}

Case read_single(const std::string& path, std::size_t runs) {
  const std::string folder = io::without_trailing_slash(path);
  const io::PathKind kind = io::path_kind(folder);
  if (kind == io::PathKind::folder && io::is_there(folder + "/" + kSweepFile))
    throw Error(Failure::input, path + ": a sweep; accepted: the folder of one sweep, or folders of runs");
  if (kind != io::PathKind::folder || !(io::holds_run(folder) || io::is_there(folder + "/" + io::kMetricsFile))) {
    throw Error(Failure::input, fmt::format("{}: {}; accepted: the folder of a run (with log.txt or metrics.jsonl) or "
                                            "of a sweep (with sweep.json)",
                                            path, kind == io::PathKind::nothing ? "no such folder" : "not a run"));
  }
  Case one;
  one.name = folder;
  one.folder = folder;
  one.run = read_run(folder, points_for(runs));
  one.state = state_of(one.run);
  one.why = one.run.killed                 ? "its process is gone, and its status says running"
            : one.run.status.state.empty() ? "no status is known"
                                           : one.run.status.why;
  return one;
}

}  // namespace

std::string Case::value(const std::string& axis) const {
  const auto found = values.find(axis);
  return found == values.end() ? "" : found->second;
}

const Axis* Study::axis(const std::string& key) const {
  const auto found = std::find_if(axes.begin(), axes.end(), [&](const Axis& axis) { return axis.key == key; });
  return found == axes.end() ? nullptr : &*found;
}

Study read_study(const std::vector<std::string>& paths) {
  const std::string first = io::without_trailing_slash(paths.front());
  if (paths.size() == 1 && io::is_folder(first) && io::is_there(first + "/" + kSweepFile)) return read_sweep(first);
  Study study;
  for (const auto& path : paths) study.cases.push_back(read_single(path, paths.size()));
  study.title = paths.size() == 1 ? first : fmt::format("{} runs", paths.size());
  const RunData& run = study.cases.front().run;
  study.program = run.heading;
  study.command = run.heading.count("command") != 0 ? run.heading.at("command") : "";
  study.started = run.heading.count("started") != 0 ? run.heading.at("started") : "";
  if (paths.size() > 1) find_axes(study);
  return study;
}

}  // namespace kozero::report
