// SPDX-FileCopyrightText: The KoZeRO authors
// SPDX-License-Identifier: Apache-2.0
// sweep_files.cpp: reads and writes sweep.json and case.json, and refuses a folder that holds something else.
#include <fmt/format.h>
#include <algorithm>
#include <filesystem>
#include <map>
#include <set>
#include <utility>

#include <kozero/core/device.hpp>
#include <kozero/core/error.hpp>
#include <kozero/core/host.hpp>
#include <kozero/run/provenance.hpp>
#include "io/posix/file.hpp"
#include "io/posix/readable.hpp"
#include "io/posix/system_resources.hpp"
#include "io/run/run_status.hpp"
#include "src/commands/sweep_files.hpp"

namespace kozero::commands {
namespace {

namespace fs = std::filesystem;
using Json = nlohmann::ordered_json;

constexpr const char* kCaseFile = "case.json";
constexpr std::int64_t kMostJson = std::int64_t{64} << 20;

void write_json(const std::string& path, const Json& json) {
  io::write_whole_file(path, json.dump(1, ' ', false, Json::error_handler_t::replace) + "\n");
}

Json program_json() {
  Json json = Json::object();
  for (const auto& [name, value] : run::program_facts()) json[name] = value;
  json["host"] = host_name();
  json["processor"] = cpu_name();
  json["cores"] = std::ssize(cores_of(allowed_cpus()));
  if (kHostIsDevice) json["free_memory"] = io::readable_bytes(io::available_memory());
  return json;
}

std::string title_of(const Json& one) {
  const auto repetition = one.at("repetition").get<std::int64_t>();
  return one.at("name").get<std::string>() + (repetition == 1 ? "" : fmt::format(" (repetition {})", repetition));
}

/// In what a case of the folder differs from the case of this matrix that has its name.
std::string difference_of(const Json& sweep, const Json& theirs, const io::Matrix& matrix) {
  const auto commit = [](const Json& program) { return program.at("commit").get<std::string>(); };
  const Json mine = program_json();
  if (commit(sweep.at("program")) != commit(mine)) {
    return fmt::format("by a program of commit {}, this one is of {}", commit(sweep.at("program")), commit(mine));
  }
  const std::string deck = matrix.dir + "/" + theirs.at("folder").get<std::string>() + "/" + kDeckOfCase;
  if (io::path_kind(deck) == io::PathKind::file && io::read_whole_file(deck, kMostJson) != matrix.deck_text) {
    return "from another text of " + matrix.deck + ", which is in " + deck;
  }
  return "with other keys of [set], other data, weights or adapters, or another build of the program";
}

[[noreturn]] void refuse_other(const io::Matrix& matrix, const std::string& why) {
  throw Error(Failure::deck, fmt::format("sweep.dir = \"{}\": {}; accepted: an empty or new folder, such as "
                                         "sweep.dir={}-2, or the sweep that it holds",
                                         matrix.dir, why, matrix.dir));
}

/// Takes the plan of a case from its entry in sweep.json.
void take_plan(SweepCase& one, const Json& entry) {
  const Json& planned = entry.at("planned");
  one.planned_bytes = planned.at("bytes_per_rank").get<std::int64_t>();
  if (planned.at("step_s").is_number()) one.step_s = planned["step_s"].get<double>();
  one.evaluation_s = planned.value("evaluation_s", 0.0);
}

/// Sorts the entries of a sweep.json into those of `cases`, whose plans it takes, and the others.
void compare_cases(SweepFile& file, const io::Matrix& matrix, std::vector<SweepCase>& cases) {
  std::map<std::string, SweepCase*> mine;
  std::set<std::pair<std::string, std::int64_t>> names;
  for (SweepCase& one : cases) {
    mine[one.identity] = &one;
    names.emplace(one.name, one.repetition);
  }
  std::size_t found = 0;
  for (const char* list : {"cases", "others"}) {
    for (const Json& entry : file.json.value(list, Json::array())) {
      const auto known = mine.find(entry.at("identity").get<std::string>());
      if (known != mine.end()) {
        take_plan(*known->second, entry);
        found += std::string(list) == "cases" ? 1 : 0;
      } else if (names.contains({entry.at("name").get<std::string>(), entry.at("repetition").get<std::int64_t>()})) {
        refuse_other(matrix, fmt::format("its case {} was trained {}", title_of(entry),
                                         difference_of(file.json, entry, matrix)));
      } else {
        file.others.push_back(entry);
      }
    }
  }
  file.is_current = found == cases.size() && file.json.at("cases").size() == cases.size();
}

}  // namespace

std::optional<CaseRecord> record_of(const SweepCase& one) {
  const std::string path = one.folder + "/" + kCaseFile;
  if (io::path_kind(path) != io::PathKind::file) return std::nullopt;
  const Json json = Json::parse(io::read_whole_file(path, kMostJson), nullptr, false);
  try {
    CaseRecord record;
    record.is_done = json.at("state") == "done";
    record.exit_status = json.at("exit_status").get<int>();
    record.seconds = json.at("seconds").get<double>();
    if (json.at("why").is_string()) record.why = json.at("why").get<std::string>();
    return json.at("identity") == one.identity ? std::optional(record) : std::nullopt;
  } catch (const nlohmann::json::exception&) {
    return std::nullopt;
  }
}

void write_record(const SweepCase& one, const CaseRecord& record, const std::string& command,
                  const std::string& started) {
  Json json = {{"identity", one.identity},
               {"name", one.name},
               {"values", one.values},
               {"repetition", one.repetition},
               {"ranks", one.ranks()},
               {"command", command},
               {"state", record.is_done ? "done" : "failed"},
               {"exit_status", record.exit_status},
               {"seconds", record.seconds},
               {"why", nullptr},
               {"started", started},
               {"ended", io::time_now()}};
  if (!record.is_done) json["why"] = record.why;
  write_json(one.folder + "/" + kCaseFile, json);
}

void begin_case(const io::Matrix& matrix, const SweepCase& one) {
  for (const char* file : {kCaseFile, kOutputFile, kStatusOfRanks, "run"}) fs::remove_all(one.folder + "/" + file);
  io::write_whole_file(one.folder + "/" + kDeckOfCase, matrix.deck_text);
}

std::string text_of_others(const SweepFile& sweep) {
  constexpr std::size_t kNamed = 4;
  const std::size_t count = sweep.others.size();
  if (count == 0) return "";
  std::string names;
  for (std::size_t i = 0; i < std::min(count, kNamed); ++i) names += (i == 0 ? "" : ", ") + title_of(sweep.others[i]);
  if (count > kNamed) names += fmt::format(" and {} more", count - kNamed);
  return count == 1 ? "1 case of the folder is not in this matrix and stays: " + names
                    : fmt::format("{} cases of the folder are not in this matrix and stay: {}", count, names);
}

SweepFile read_sweep(const io::Matrix& matrix, std::vector<SweepCase>& cases) {
  const std::string path = matrix.dir + "/" + io::kSweepFile;
  if (!io::is_there(path)) {
    if (!io::is_there(matrix.dir)) return {};
    if (!io::is_folder(matrix.dir)) {
      throw Error(Failure::deck, "sweep.dir = \"" + matrix.dir + "\": not a folder; accepted: an empty or new one");
    }
    for (const auto& entry : fs::directory_iterator(matrix.dir)) {
      const fs::path name = entry.path().filename();
      if (name == io::partial_name(io::kSweepFile) || name == "cases") continue;  // of a killed start
      throw Error(Failure::deck,
                  fmt::format("sweep.dir = \"{}\": it holds {} and no sweep; accepted: an empty or new folder",
                              matrix.dir, name.string()));
    }
    return {};
  }
  SweepFile file{Json::parse(io::read_whole_file(path, kMostJson), nullptr, false), false, {}};
  try {
    if (file.json.at("kozero_sweep") != 1) {
      refuse_other(matrix, std::string("it holds a sweep whose ") + io::kSweepFile + " has another version");
    }
    compare_cases(file, matrix, cases);
  } catch (const nlohmann::json::exception&) {
    throw Error(Failure::input, path + ": damaged; remove it, and the sweep goes on with the cases beside it");
  }
  return file;
}

void write_sweep(const io::Matrix& matrix, const std::vector<SweepCase>& cases, const std::string& command,
                 const SweepFile& before) {
  const bool extends = !before.json.is_null();
  Json axes = Json::array();
  for (const auto& axis : matrix.axes) {
    Json values = Json::array();
    for (const auto& value : axis.values) values.push_back(value.value);
    axes.push_back({{"key", axis.key}, {"values", values}});
  }
  Json list = Json::array();
  for (const SweepCase& one : cases) {
    Json planned = {{"bytes_per_rank", one.planned_bytes}, {"step_s", nullptr}};
    if (one.step_s) planned["step_s"] = *one.step_s;
    planned["evaluation_s"] = one.evaluation_s;
    list.push_back({{"identity", one.identity},
                    {"name", one.name},
                    {"folder", fs::path(one.folder).lexically_relative(matrix.dir).string()},
                    {"values", one.values},
                    {"repetition", one.repetition},
                    {"ranks", one.ranks()},
                    {"planned", planned}});
  }
  const Json json = {{"kozero_sweep", 1},
                     {"name", matrix.name},
                     {"matrix", matrix.path},
                     {"deck", matrix.deck},
                     {"command", command},
                     {"started", extends ? before.json.at("started") : Json(io::time_now())},
                     {"program", program_json()},
                     {"axes", axes},
                     {"cases", list},
                     {"others", before.others}};
  write_json(matrix.dir + "/" + io::kSweepFile, json);
}

}  // namespace kozero::commands
