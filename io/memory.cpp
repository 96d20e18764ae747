// SPDX-FileCopyrightText: The KoZeRO authors
// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <fstream>
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

}  // namespace

std::int64_t available_memory() {
  std::int64_t available = 0;
  std::ifstream meminfo("/proc/meminfo");
  for (std::string line; std::getline(meminfo, line);) {
    std::istringstream words(line);
    std::string name;
    std::int64_t kibibytes = 0;
    words >> name >> kibibytes;
    if (name == "MemAvailable:") available = kibibytes * 1024;
  }
  const std::int64_t limit = number_in("/sys/fs/cgroup/memory.max");
  const std::int64_t used = number_in("/sys/fs/cgroup/memory.current");
  return limit > 0 && used >= 0 ? std::min(available, std::max<std::int64_t>(0, limit - used)) : available;
}

ResidentMemory resident_memory() {
  ResidentMemory memory;
  std::ifstream status("/proc/self/status");
  for (std::string line; std::getline(status, line);) {
    std::istringstream words(line);
    std::string name;
    std::int64_t kibibytes = 0;
    words >> name >> kibibytes;
    if (name == "VmRSS:") memory.current = kibibytes * 1024;
    if (name == "VmHWM:") memory.peak = kibibytes * 1024;
  }
  return memory;
}

}  // namespace kozero::io
