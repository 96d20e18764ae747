// SPDX-FileCopyrightText: The KoZeRO authors
// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <fstream>
#include <map>
#include <sstream>
#include <string>

#include <kozero/io/memory.hpp>

namespace kozero::io {
namespace {

/// The first number of a file that holds one, -1 otherwise ("max", or no such file).
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

}  // namespace kozero::io
