// SPDX-FileCopyrightText: The KoZeRO authors
// SPDX-License-Identifier: Apache-2.0
// sweep_files.cpp: reads and writes sweep.json and case.json, and refuses a folder that holds something else.
#include <fmt/format.h>
#include <algorithm>
#include <filesystem>
#include <set>

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

std::vector<std::string> identities_in(const Json& sweep) {
  std::vector<std::string> identities;
  for (const auto& one : sweep.at("cases")) identities.push_back(one.at("identity").get<std::string>());
  return identities;
}

/// The first thing in which a sweep in the folder is another than this one.
std::string difference_of(const Json& sweep, const io::Matrix& matrix) {
  if (sweep.at("name") != matrix.name) return "its name is " + sweep.at("name").get<std::string>();
  const auto commit = [](const Json& program) { return program.at("commit").get<std::string>(); };
  const Json mine = program_json();
  if (commit(sweep.at("program")) != commit(mine)) {
    return fmt::format("its program is of commit {}, this one of {}", commit(sweep.at("program")), commit(mine));
  }
  return "its axes, deck, data or build of the program are others";
}

[[noreturn]] void refuse_other(const io::Matrix& matrix, const std::string& why) {
  throw Error(Failure::deck, fmt::format("sweep.dir = \"{}\": it holds another sweep: {}; accepted: an empty or new "
                                         "folder, such as sweep.dir={}-2, or the sweep that it holds",
                                         matrix.dir, why, matrix.dir));
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

void remove_case(const SweepCase& one) {
  for (const char* file : {kCaseFile, kOutputFile, kStatusOfRanks, "run"}) fs::remove_all(one.folder + "/" + file);
}

SweepFile read_sweep(const io::Matrix& matrix, const std::vector<SweepCase>& cases) {
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
  SweepFile file{Json::parse(io::read_whole_file(path, kMostJson), nullptr, false), false};
  try {
    if (file.json.at("kozero_sweep") != 1) refuse_other(matrix, std::string(io::kSweepFile) + " has another version");
    std::set<std::string> mine;
    for (const SweepCase& one : cases) mine.insert(one.identity);
    const auto theirs = identities_in(file.json);
    const auto is_mine = [&](const std::string& identity) { return mine.contains(identity); };
    if (!std::ranges::all_of(theirs, is_mine)) refuse_other(matrix, difference_of(file.json, matrix));
    file.is_current = theirs.size() == cases.size();
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
                     {"cases", list}};
  write_json(matrix.dir + "/" + io::kSweepFile, json);
}

}  // namespace kozero::commands
