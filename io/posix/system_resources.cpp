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
#include "io/posix/file.hpp"
#include "io/posix/readable.hpp"
#include "io/posix/system_resources.hpp"

namespace kozero::io {

namespace fs = std::filesystem;
namespace {

/// The number at the beginning of a file; -1 if there is none ("max", or no such file).
std::int64_t number_in(const std::string& path) {
  std::ifstream file(path);
  std::int64_t number = 0;
  return file >> number ? number : -1;
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

/// The largest size of a file that this process may write (`ulimit -f`).
std::int64_t file_size_limit() {
  constexpr auto kMost = std::numeric_limits<std::int64_t>::max();
  struct rlimit limit {};
  if (::getrlimit(RLIMIT_FSIZE, &limit) != 0) return kMost;
  return static_cast<std::int64_t>(std::min<rlim_t>(limit.rlim_cur, kMost));
}

}  // namespace

std::int64_t available_memory() {
  const std::int64_t available = bytes_in("/proc/meminfo")["MemAvailable:"];
  const std::int64_t limit = number_in("/sys/fs/cgroup/memory.max");
  const std::int64_t used = number_in("/sys/fs/cgroup/memory.current");
  return limit > 0 && used >= 0 ? std::min(available, std::max<std::int64_t>(0, limit - used)) : available;
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
