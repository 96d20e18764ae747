// SPDX-FileCopyrightText: The KoZeRO authors
// SPDX-License-Identifier: Apache-2.0
// run_status.cpp: status.json, ranks.json and failure notes, written whole, also from signal and watchdog threads.
#include <fcntl.h>
#include <signal.h>
#include <sys/stat.h>
#include <unistd.h>
#include <algorithm>
#include <array>
#include <cstdio>
#include <ctime>
#include <filesystem>
#include <mutex>
#include <nlohmann/json.hpp>
#include <set>

#include <kozero/core/error.hpp>
#include <kozero/core/host.hpp>
#include "io/posix/file.hpp"
#include "io/run/metrics.hpp"
#include "io/run/run_folder.hpp"
#include "io/run/run_status.hpp"

namespace kozero::io {

namespace fs = std::filesystem;

namespace {

using Json = nlohmann::ordered_json;

constexpr std::int64_t kMostBytes = 64 << 20;  // of ranks.json on very many ranks
constexpr const char* kNotePrefix = "failure_rank_";

/// The file's text; "" if it is absent or cannot be read.
std::string text_in(const std::string& path) {
  try {
    return read_whole_file(path, kMostBytes);
  } catch (const Error&) {
    return "";
  }
}

/// The file as JSON; null if it is absent or broken.
Json read_json(const std::string& path) {
  Json json = Json::parse(text_in(path), nullptr, false);
  return json.is_discarded() ? Json() : json;
}

template <class T>
T value_in(const Json& json, const char* key, T otherwise) {
  const auto found = json.is_object() ? json.find(key) : json.end();
  if (found == json.end()) return otherwise;
  try {
    return found->get<T>();
  } catch (const nlohmann::json::exception&) {
    return otherwise;
  }
}

/// The first line of an error; log.txt has the lines of details too.
std::string first_line(const std::string& text) { return text.substr(0, text.find('\n')); }

std::string why_in(const Json& json) { return first_line(value_in(json, "why", std::string("?"))); }

/// Replaces a file through a temporary name with this process's host and number, so that two ranks do not collide.
void replace(const std::string& path, const Json& json) {
  const std::string text = json.dump(-1, ' ', false, Json::error_handler_t::replace) + "\n";
  const std::string mine = path + "." + host_name() + "." + std::to_string(::getpid());
  write_whole_file(mine, text);
  std::error_code problem;
  fs::rename(mine, path, problem);
  if (!problem) return;
  fs::remove(mine, problem);
  throw Error(Failure::write, path + ": cannot be replaced");
}

/// Removes files "status.json.HOST.PID" of processes that were killed in replace().
void remove_unfinished(const std::string& folder) {
  std::error_code problem;
  std::vector<fs::path> left;
  for (fs::directory_iterator entry(folder, problem), end; !problem && entry != end; entry.increment(problem)) {
    std::string name = entry->path().filename().string();
    if (name.ends_with(partial_name(""))) name.resize(name.size() - partial_name("").size());
    const auto process = name.find_last_not_of("0123456789");
    const bool is_ours =
        name.starts_with(kStatusFile + std::string(".")) || name.starts_with(kRanksFile + std::string("."));
    if (is_ours && process + 1 < name.size() && name[process] == '.') left.push_back(entry->path());
  }
  for (const auto& path : left) fs::remove(path, problem);
}

/// Guards status.json between the main thread and a thread that reports a signal.
std::mutex& mutex_of_status() {
  static std::mutex mutex;
  return mutex;
}

std::vector<fs::path> failure_notes_in(const std::string& folder) {
  std::vector<fs::path> words;
  std::error_code problem;
  for (fs::directory_iterator entry(folder, problem), end; !problem && entry != end; entry.increment(problem)) {
    if (entry->path().filename().string().starts_with(kNotePrefix)) words.push_back(entry->path());
  }
  std::sort(words.begin(), words.end());
  return words;
}

/// "ranks 0-3 on hosts a, b"
std::string names_of(const std::vector<RankProcess>& ranks) {
  std::set<std::string> hosts;
  for (const auto& rank : ranks) hosts.insert(rank.host);
  std::string text = ranks.size() == 1 ? "rank 0" : "ranks 0-" + std::to_string(ranks.size() - 1);
  text += hosts.size() == 1 ? " on host" : " on hosts";
  std::string separator = " ";
  for (const auto& host : hosts) {
    text += separator + host;
    separator = ", ";
  }
  return text;
}

}  // namespace

double seconds_since_1970() {
  using Milliseconds = std::chrono::milliseconds;
  const auto now = std::chrono::system_clock::now().time_since_epoch();
  return static_cast<double>(std::chrono::duration_cast<Milliseconds>(now).count()) / 1e3;
}

bool is_gone(const RankProcess& process) {
  return process.host == host_name() && process.pid > 0 && ::kill(static_cast<pid_t>(process.pid), 0) != 0 &&
         errno == ESRCH;
}

std::string time_now() {
  const std::time_t now = std::time(nullptr);
  std::tm utc{};
  std::array<char, 32> text{};
  ::gmtime_r(&now, &utc);
  std::strftime(text.data(), text.size(), "%Y-%m-%dT%H:%M:%SZ", &utc);
  return text.data();
}

RankProcess this_process() { return {.host = host_name(), .pid = ::getpid()}; }

RunRecord::RunRecord(std::string folder, std::vector<RankProcess> ranks)
    : folder_(std::move(folder)), ranks_(std::move(ranks)), start_(time_now()), before_(status_text(folder_)) {
  struct stat status {};
  if (::stat(folder_.c_str(), &status) == 0) identity_ = {status.st_dev, status.st_ino};
}

bool RunRecord::has_folder() const {
  struct stat status {};
  return ::stat(folder_.c_str(), &status) == 0 && identity_ == std::pair{status.st_dev, status.st_ino};
}

std::string RunRecord::status_text(const std::string& folder) { return text_in(folder + "/" + kStatusFile); }

void RunRecord::begin(std::int64_t step) const {
  remove_unfinished(folder_);
  Json ranks = Json::array();
  for (std::size_t r = 0; r < ranks_.size(); ++r) {
    const RankProcess& process = ranks_[r];
    ranks.push_back({{"rank", r},
                     {"host", process.host},
                     {"pid", process.pid},
                     {"threads", process.threads},
                     {"cpus", process.cpus},
                     {"numa", process.numa},
                     {"gpu", process.gpu}});
  }
  replace(path_of(kRanksFile), ranks);
  write({"running", "", step, {}}, "");
}

void RunRecord::write(const RunStatus& status, const std::string& end) const {
  replace(path_of(kStatusFile), {{"state", status.state},
                                 {"why", first_line(status.why)},
                                 {"step", status.step},
                                 {"exit_status", status.exit_status ? Json(*status.exit_status) : Json()},
                                 {"host", ranks_[0].host},
                                 {"pid", ranks_[0].pid},
                                 {"start", start_},
                                 {"end", end.empty() ? Json() : Json(end)}});
}

void RunRecord::update(std::int64_t step) const noexcept {
  try {
    const std::lock_guard lock(mutex_of_status());
    if (is_ours()) write({"running", "", step, {}}, "");
  } catch (const std::exception&) {
    return;
  }
}

bool RunRecord::is_ours() const {
  if (!has_folder()) return false;
  const Json now = read_json(path_of(kStatusFile));
  return value_in(now, "state", std::string()) == "running" && value_in(now, "host", std::string()) == ranks_[0].host &&
         value_in(now, "pid", std::int64_t{0}) == ranks_[0].pid;
}

bool RunRecord::end(const RunStatus& status) const noexcept {
  try {
    const std::lock_guard lock(mutex_of_status());
    RunStatus written = status;
    if (is_as_before()) {
      written.step = value_in(read_json(path_of(kStatusFile)), "step", std::int64_t{0});
    } else if (!is_ours()) {
      return false;
    }
    write(written, time_now());
    return true;
  } catch (const std::exception&) {
    return false;  // the line was printed already
  }
}

bool RunRecord::write_failure_note(int rank, std::int64_t step, const std::string& why) const noexcept {
  try {
    const std::string path = path_of(kNotePrefix + std::to_string(rank) + ".json");
    const RankProcess& process = ranks_.at(static_cast<std::size_t>(rank));
    const Json note = {
        {"rank", rank}, {"host", process.host}, {"pid", process.pid}, {"step", step}, {"why", first_line(why)}};
    const std::string text = note.dump(-1, ' ', false, Json::error_handler_t::replace) + "\n";
    const int file = ::open(path.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
    if (file < 0) return false;
    // The note first: a launcher may kill this process any moment.
    const bool written = ::write(file, text.data(), text.size()) == static_cast<ssize_t>(text.size());
    const bool stays = written && is_ours();
    if (!stays) ::unlink(path.c_str());
    if (stays) ::fsync(file);
    ::close(file);
    return stays;
  } catch (const std::exception&) {
    return false;
  }
}

void RunRecord::log(const std::string& line) const noexcept {
  try {
    const std::string text = line + "\n";
    if (!has_folder()) return;
    const int file =
        ::open(path_of(kLogFile).c_str(), O_WRONLY | O_APPEND | O_CLOEXEC | O_NOCTTY | O_NOFOLLOW | O_NONBLOCK);
    if (file < 0) return;
    static_cast<void>(!::write(file, text.data(), text.size()));
    ::fsync(file);
    ::close(file);
  } catch (const std::exception&) {
    return;  // no memory for a line that was printed already
  }
}

std::string RunRecord::name_of(int rank) const {
  return "rank " + std::to_string(rank) + " on host " + ranks_.at(static_cast<std::size_t>(rank)).host;
}

RunStatus status_of_run(const std::string& folder) {
  const Json status = read_json(folder + "/" + kStatusFile);
  return {value_in(status, "state", std::string()),
          why_in(status),
          newest_metrics_step(folder + "/" + kMetricsFile).value_or(value_in(status, "step", std::int64_t{0})),
          {}};
}

std::vector<RankProcess> ranks_in(const std::string& folder) {
  std::vector<RankProcess> ranks;
  const Json json = read_json(folder + "/" + kRanksFile);
  if (!json.is_array()) return ranks;
  for (const auto& each : json) {
    ranks.push_back({value_in(each, "host", std::string("?")), value_in(each, "pid", std::int64_t{0}),
                     value_in(each, "threads", std::int64_t{0}), value_in(each, "cpus", std::string()),
                     value_in(each, "numa", std::string()), value_in(each, "gpu", std::string())});
  }
  return ranks;
}

bool holds_run(const std::string& folder) {
  return fs::exists(folder + "/" + kLogFile) || fs::exists(folder + "/" + kStatusFile);
}

std::vector<std::string> notes_on_run_before(const std::string& folder) {
  const Json status = read_json(folder + "/" + kStatusFile);
  const auto state = value_in(status, "state", std::string());
  if (state != "running" && state != "failed") return {};
  const std::int64_t step =
      newest_metrics_step(folder + "/" + kMetricsFile).value_or(value_in(status, "step", std::int64_t{0}));
  const std::string begin = "the run before ended at step " + std::to_string(step) + ": ";
  std::vector<std::string> lines;
  for (const auto& path : failure_notes_in(folder)) {
    const Json word = read_json(path.string());
    if (!word.is_object()) continue;
    lines.push_back("the run before ended at step " + std::to_string(value_in(word, "step", step)) + ": rank " +
                    std::to_string(value_in(word, "rank", -1)) + " on host " +
                    value_in(word, "host", std::string("?")) + ": " + why_in(word));
  }
  if (!lines.empty()) return lines;
  if (state == "failed") return {begin + why_in(status)};
  const auto ranks = ranks_in(folder);
  const std::string who = ranks.empty() ? "its ranks" : names_of(ranks);
  const std::string killed = " killed (signal 9, out of memory or a lost node)";
  if (ranks.size() == 1) return {begin + who + " was" + killed};
  return {begin + who + " were" + killed + "; which ended first is not known, see the launcher's output"};
}

void clear_failure_notes(const std::string& folder) {
  for (const auto& path : failure_notes_in(folder)) {
    std::error_code ignored;
    fs::remove(path, ignored);
  }
}

}  // namespace kozero::io
