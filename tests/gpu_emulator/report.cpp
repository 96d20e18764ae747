// SPDX-FileCopyrightText: The KoZeRO authors
// SPDX-License-Identifier: Apache-2.0
// report.cpp: reads KOZERO_GPU_EMULATOR, and prints findings, which decide the exit status.
#include "report.hpp"

#include <unistd.h>

#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <map>
#include <mutex>
#include <set>
#include <sstream>

#include "memory.hpp"

namespace kozero::gpu_emulator {
namespace {

constexpr int kFoundSomething = 86;
constexpr int kMostLines = 40;

Options read_options() {
  Options read;
  const std::map<std::string, std::int64_t*> numbers = {{"memory_mib", &read.memory_mib},
                                                        {"idle_us", &read.idle_us},
                                                        {"drop", &read.drop},
                                                        {"shift", &read.shift},
                                                        {"skip", &read.skip}};
  const std::map<std::string, bool*> switches = {{"exact", &read.exact}, {"late", &read.late},
                                                 {"races", &read.races}, {"uninitialized", &read.uninitialized},
                                                 {"leaks", &read.leaks}, {"counts", &read.counts}};
  const char* text = std::getenv("KOZERO_GPU_EMULATOR");
  std::istringstream settings(text == nullptr ? "" : text);
  for (std::string setting; std::getline(settings, setting, ',');) {
    const auto equals = setting.find('=');
    const std::string key = setting.substr(0, equals);
    const long long value = equals == std::string::npos ? 1 : std::atoll(setting.c_str() + equals + 1);
    if (key == "seed")
      read.seed = static_cast<std::uint64_t>(value);
    else if (key == "capability")
      read.capability = static_cast<int>(value);
    else if (key == "driver")
      read.driver = static_cast<int>(value);
    else if (numbers.contains(key))
      *numbers.at(key) = value;
    else if (switches.contains(key))
      *switches.at(key) = value != 0;
    else
      stop("KOZERO_GPU_EMULATOR: " + setting +
           " is no setting; accepted: seed, exact, late, races, uninitialized, leaks, "
           "counts, memory_mib, idle_us, capability, driver, drop, shift, skip");
  }
  return read;
}

std::mutex mutex;
std::set<std::string> places;
std::atomic<std::int64_t> found = 0;

/// Runs after the program's destructors. The library itself has no destructors that must run.
struct AtEnd {
  ~AtEnd() {
    if (options().leaks) report_leaks();
    if (options().counts) {
      const Counts& all = counts();
      std::fprintf(stderr, "gpu_emulator: %lld launches, %lld blocks, %.1f M thread instructions, %.2f s of CPU time\n",
                   static_cast<long long>(all.launches), static_cast<long long>(all.blocks),
                   static_cast<double>(all.instructions) * 1e-6, all.seconds);
    }
    if (found == 0) return;
    std::fprintf(stderr, "gpu_emulator: %lld findings\n", static_cast<long long>(found));
    std::fflush(nullptr);
    _exit(kFoundSomething);
  }
} at_end;

}  // namespace

const Options& options() {
  static const Options read = read_options();
  return read;
}

void finding(const char* kind, const std::string& place, const std::string& text) {
  const std::lock_guard lock(mutex);
  if (!places.insert(kind + place).second) return;
  if (++found <= kMostLines) std::fprintf(stderr, "gpu_emulator: %s: %s\n", kind, text.c_str());
}

std::int64_t findings() { return found; }

void stop(const std::string& text) {
  std::fprintf(stderr, "gpu_emulator: stopped: %s\n", text.c_str());
  std::fflush(nullptr);
  _exit(kFoundSomething);
}

std::string hex(std::uint64_t value) {
  char text[24];
  std::snprintf(text, sizeof(text), "0x%llx", static_cast<unsigned long long>(value));
  return text;
}

Counts& counts() {
  static Counts all;
  return all;
}

}  // namespace kozero::gpu_emulator
