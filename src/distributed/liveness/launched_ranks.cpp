// SPDX-FileCopyrightText: The KoZeRO authors
// SPDX-License-Identifier: Apache-2.0
// launched_ranks.cpp: reads the states, threads and launchers' variables of this node's processes from /proc, and looks
// whether the launcher's process lives.
#include <unistd.h>
#include <algorithm>
#include <atomic>
#include <charconv>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <map>
#include <sstream>
#include <string_view>

#include <kozero/distributed/environment.hpp>
#include "src/distributed/liveness/launched_ranks.hpp"
#include "src/distributed/liveness/watchdog.hpp"

namespace kozero::distributed {
namespace {

namespace fs = std::filesystem;

constexpr const char* kArrived = "MPI_Init";  // a thread's name

std::atomic<pid_t> launcher = 0;  // the parent at the start; 0: none

/// The file's text; "" if it cannot be read, since a process may end meanwhile.
std::string text_of(const fs::path& path) {
  std::ostringstream text;
  text << std::ifstream(path, std::ios::binary).rdbuf();
  return text.str();
}

struct Process {
  long number = 0;
  char state = '?';  // as in /proc/PID/stat: T is stopped
  long parent = 0;
};

Process process_in(const fs::path& folder) {
  Process process;
  const std::string name = folder.filename().string();
  const char* const end = name.data() + name.size();
  if (std::from_chars(name.data(), end, process.number).ptr != end) return {};
  const std::string stat = text_of(folder / "stat");  // "123 (name) T 100 ..."
  std::istringstream(stat.substr(std::min(stat.size(), stat.rfind(')') + 1))) >> process.state >> process.parent;
  return process;
}

/// The rank that the launcher gave to a process; -1 if none.
int rank_of(const fs::path& folder) {
  std::istringstream variables(text_of(folder / "environ"));
  for (std::string variable; std::getline(variables, variable, '\0');) {
    for (const std::string_view name : {"PMI_RANK=", "PMIX_RANK=", "OMPI_COMM_WORLD_RANK="}) {
      if (variable.starts_with(name)) return std::atoi(variable.c_str() + name.size());
    }
  }
  return -1;
}

bool has_arrived(const fs::path& folder) {
  std::error_code problem;
  for (fs::directory_iterator thread(folder / "task", problem), end; !problem && thread != end;
       thread.increment(problem)) {
    if (text_of(thread->path() / "comm") == std::string(kArrived) + "\n") return true;
  }
  return false;
}

/// The problem of each rank that the same launcher started on this node; "" if the rank reached MPI_Init.
std::map<int, std::string> launched_here() {
  std::map<int, std::string> ranks;
  std::error_code problem;
  for (fs::directory_iterator entry("/proc", problem), end; !problem && entry != end; entry.increment(problem)) {
    const Process process = process_in(entry->path());
    if (process.number == 0 || process.parent != ::getppid()) continue;
    const int rank = rank_of(entry->path());
    if (rank < 0) continue;
    const std::string who = "process " + std::to_string(process.number) + " of this node, which ";
    if (process.state == 'T' || process.state == 't') {
      ranks[rank] = who + "is stopped";
    } else if (process.state == 'Z' || process.state == 'X') {
      ranks[rank] = who + "has ended";
    } else {
      ranks[rank] = has_arrived(entry->path()) ? "" : who + "has not come to MPI_Init";
    }
  }
  return ranks;
}

int number_of(const char* variable) {
  const char* text = std::getenv(variable);
  return text == nullptr ? 0 : std::atoi(text);
}

}  // namespace

void remember_launcher() {
  const bool is_launched = !launcher_world_size(std::getenv).empty() || std::getenv("HYDI_CONTROL_FD") != nullptr;
  if (is_launched) launcher = ::getppid();
}

bool launcher_is_lost() { return launcher > 1 && ::getppid() != launcher; }

void show_arrival() { name_watchdog(kArrived); }

std::string ranks_not_arrived() {
  std::map<int, std::string> ranks = launched_here();
  if (!ranks.contains(known_rank())) return "";  // not a child of the launcher: a script is between them
  const int size = number_of("PMI_SIZE");
  if (size == number_of("MPI_LOCALNRANKS")) {
    for (int rank = 0; rank < size; ++rank) ranks.try_emplace(rank, "which has no process on this node");
  }
  std::string text;
  for (const auto& [rank, wrong] : ranks) {
    if (!wrong.empty()) text += (text.empty() ? "rank " : ", rank ") + std::to_string(rank) + " (" + wrong + ")";
  }
  return text;
}

}  // namespace kozero::distributed
