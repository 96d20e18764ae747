// SPDX-FileCopyrightText: The KoZeRO authors
// SPDX-License-Identifier: Apache-2.0
// tools.cpp: the callbacks of Kokkos Tools, https://kokkos.org/kokkos-core-wiki/ProgrammingGuide/Kokkos-Tools.html
#include "tools.hpp"

#include <cxxabi.h>
#include <dlfcn.h>
#include <sys/auxv.h>

#include <atomic>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <iterator>
#include <map>
#include <memory>
#include <mutex>

#include "memory.hpp"
#include "report.hpp"

namespace {

constexpr std::size_t kLongestName = 90;
thread_local std::string current;
thread_local std::string fence;
std::atomic<bool> has_started = false;

void begin(const char* name) { current = name == nullptr ? "" : name; }

}  // namespace

namespace kozero::gpu_emulator {

std::string kernel_label(const std::string& name) {
  if (!current.empty()) return current;
  int status = 0;
  const std::unique_ptr<char, void (*)(void*)> readable(abi::__cxa_demangle(name.c_str(), nullptr, nullptr, &status),
                                                        std::free);
  const std::string text = readable ? readable.get() : name;
  return text.size() > kLongestName ? text.substr(0, kLongestName) + "..." : text;
}

bool is_left_out(const char* call, const void* caller) {
  if (options().skip == 0 || !has_started || (!fence.empty() && !fence.starts_with("kozero"))) return false;
  static std::mutex mutex;
  static std::map<std::string, std::int64_t> places;
  const std::lock_guard lock(mutex);
  Dl_info module{}, program{};
  dladdr(caller, &module);
  dladdr(reinterpret_cast<const void*>(getauxval(AT_ENTRY)), &program);
  if (fence.empty() && module.dli_fbase != program.dli_fbase) return false;
  const auto offset = static_cast<const char*>(caller) - static_cast<const char*>(module.dli_fbase);
  const std::string place = fence.empty() ? call + (" at " + hex(static_cast<std::uint64_t>(offset))) : fence;
  const auto [at, is_new] = places.emplace(place, std::ssize(places) + 1);
  if (at->second != options().skip) return false;
  if (is_new) std::fprintf(stderr, "gpu_emulator: mutant: no %s\n", place.c_str());
  return true;
}

}  // namespace kozero::gpu_emulator

extern "C" {

struct Kokkos_Tools_ToolSettings {
  bool requires_global_fencing;
  bool padding[255];
};
/// Without this Kokkos waits for the device before each call.
void kokkosp_request_tool_settings(std::uint32_t, Kokkos_Tools_ToolSettings* settings) {
  settings->requires_global_fencing = false;
}

void kokkosp_init_library(int, std::uint64_t, std::uint32_t, void*) { has_started = true; }

void kokkosp_begin_parallel_for(const char* name, std::uint32_t, std::uint64_t*) { begin(name); }
void kokkosp_begin_parallel_reduce(const char* name, std::uint32_t, std::uint64_t*) { begin(name); }
void kokkosp_begin_parallel_scan(const char* name, std::uint32_t, std::uint64_t*) { begin(name); }
void kokkosp_end_parallel_for(std::uint64_t) { current.clear(); }
void kokkosp_end_parallel_reduce(std::uint64_t) { current.clear(); }
void kokkosp_end_parallel_scan(std::uint64_t) { current.clear(); }
void kokkosp_begin_fence(const char* name, std::uint32_t, std::uint64_t*) { fence = name == nullptr ? "" : name; }
void kokkosp_end_fence(std::uint64_t) { fence.clear(); }

struct SpaceHandle {
  char name[64];
};
void kokkosp_allocate_data(SpaceHandle, const char* label, const void* at, std::uint64_t) {
  kozero::gpu_emulator::set_label(reinterpret_cast<std::uint64_t>(at), label);
}

}  // extern "C"
