// SPDX-FileCopyrightText: The KoZeRO authors
// SPDX-License-Identifier: Apache-2.0
// system_resources.cpp: memory from /proc and the control groups, disk space from statvfs(2).
#include <fcntl.h>
#include <sys/resource.h>
#include <sys/statvfs.h>
#include <unistd.h>
#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <limits>
#include <map>
#include <sstream>
#include <string>

#include <kozero/core/error.hpp>
#include <kozero/core/host.hpp>
#include "io/posix/file.hpp"
#include "io/posix/readable.hpp"
#include "io/posix/system_resources.hpp"

namespace kozero::io {

namespace fs = std::filesystem;
namespace {

constexpr std::int64_t kUnlimited = std::numeric_limits<std::int64_t>::max();

/// The number at the beginning of a file; -1 if there is none ("max", or no such file).
std::int64_t number_in(const std::string& path) {
  std::ifstream file(path);
  std::int64_t number = 0;
  return file >> number ? number : -1;
}

/// The number behind a word at the beginning of a line of a file; 0 if there is none.
std::int64_t number_of(const std::string& name, const std::string& path) {
  std::ifstream file(path);
  std::string word;
  for (std::int64_t number = 0; file >> word >> number;) {
    if (word == name) return number;
  }
  return 0;
}

/// The lines "name: number kB" of a file, in bytes.
std::map<std::string, std::int64_t> bytes_in(const std::string& path) {
  std::map<std::string, std::int64_t> bytes;
  std::ifstream file(path);
  for (std::string line; std::getline(file, line);) {
    std::istringstream words(line);
    std::string name;
    std::int64_t kibibytes = 0;
    if (words >> name >> kibibytes) bytes[name] = kibibytes * 1024;
  }
  return bytes;
}

std::string with_bytes(std::int64_t bytes) { return readable_bytes(bytes) + " (" + std::to_string(bytes) + " bytes)"; }

fs::path nearest_existing(const std::string& folder) {
  fs::path existing = fs::absolute(folder);
  std::error_code ignored;
  while (!fs::exists(existing, ignored) && existing.has_relative_path()) existing = existing.parent_path();
  return existing;
}

/// Bytes left in the memory control groups that contain this process, as far as their files are visible. Pages of files
/// that the kernel would drop do not count as used. Batch systems limit jobs by such groups.
std::int64_t left_in_control_groups() {
  struct Files {
    const char *root, *limit, *used, *droppable;
  };
  constexpr Files kVersion1 = {"/sys/fs/cgroup/memory", "memory.limit_in_bytes", "memory.usage_in_bytes",
                               "total_inactive_file"};
  constexpr Files kVersion2 = {"/sys/fs/cgroup", "memory.max", "memory.current", "inactive_file"};
  std::int64_t least = kUnlimited;
  std::ifstream groups("/proc/self/cgroup");  // "4:memory:/slurm/uid_1000/job_7", or "0::/system.slice"
  for (std::string line; std::getline(groups, line);) {
    std::istringstream fields(line);
    std::string number, controllers, path;
    std::getline(std::getline(std::getline(fields, number, ':'), controllers, ':'), path);
    const bool is_memory = ("," + controllers + ",").find(",memory,") != std::string::npos;
    if (!is_memory && !controllers.empty()) continue;
    const Files& files = is_memory ? kVersion1 : kVersion2;
    for (fs::path group = path;; group = group.parent_path()) {
      const std::string folder = files.root + group.string() + "/";
      const std::int64_t limit = number_in(folder + files.limit);
      const std::int64_t used = number_in(folder + files.used) - number_of(files.droppable, folder + "memory.stat");
      if (limit > 0) least = std::min(least, std::max<std::int64_t>(0, limit - used));
      if (!group.has_relative_path()) break;
    }
  }
  return least;
}

/// The largest size of a file that this process may write (`ulimit -f`).
std::int64_t file_size_limit() {
  struct rlimit limit {};
  if (::getrlimit(RLIMIT_FSIZE, &limit) != 0) return kUnlimited;
  return static_cast<std::int64_t>(std::min<rlim_t>(limit.rlim_cur, kUnlimited));
}

}  // namespace

std::int64_t available_memory() {
  return std::min(bytes_in("/proc/meminfo")["MemAvailable:"], left_in_control_groups());
}

std::int64_t address_space_left() {
  struct rlimit limit {};
  if (::getrlimit(RLIMIT_AS, &limit) != 0 || limit.rlim_cur == RLIM_INFINITY) return kUnlimited;
  const auto most = static_cast<std::int64_t>(std::min<rlim_t>(limit.rlim_cur, kUnlimited));
  return std::max<std::int64_t>(1, most - bytes_in("/proc/self/status")["VmSize:"]);
}

std::string memory_exhausted() {
  return std::string(kMemoryExhausted) + ", host " + host_name() +
         ": use fewer ranks per host, or raise the job's limit (ulimit -v, or the batch system's)";
}

ResidentMemory resident_memory() {
  auto bytes = bytes_in("/proc/self/status");
  return {bytes["VmRSS:"], bytes["VmHWM:"]};
}

std::int64_t shares_of_others() {
  auto bytes = bytes_in("/proc/self/smaps_rollup");
  return std::max<std::int64_t>(0, bytes["Rss:"] - bytes["Pss:"]);
}

std::string nearest_folder(const std::string& folder) { return nearest_existing(folder).lexically_normal().string(); }

std::int64_t free_disk_bytes(const std::string& folder) {
  const fs::path existing = nearest_existing(folder);
  struct statvfs status {};
  if (::statvfs(existing.c_str(), &status) != 0) {
    throw Error(Failure::write, existing.string() + ": cannot ask for its free space: " + errno_text());
  }
  const double bytes = static_cast<double>(status.f_bavail) * static_cast<double>(status.f_frsize);
  const auto most = file_size_limit();
  const bool unknown = status.f_blocks == 0 || bytes >= static_cast<double>(most);
  return unknown ? most : static_cast<std::int64_t>(bytes);
}

void require_writable(const std::string& folder) {
  const std::string existing = nearest_existing(folder).string();
  std::string name = existing + "/.kozero-XXXXXX";
  const int file = ::mkostemp(name.data(), O_CLOEXEC);
  if (file < 0) throw Error(Failure::write, existing + ": cannot make a file there: " + errno_text());
  ::close(file);
  ::unlink(name.c_str());
}

std::string space_text(std::int64_t needed, std::int64_t free) {
  const bool is_limit = free == file_size_limit();
  return "takes " + with_bytes(needed) + " and " + with_bytes(free) +
         (is_limit ? " is the size limit of a file (ulimit -f)" : " are free");
}

}  // namespace kozero::io
