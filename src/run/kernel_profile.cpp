// SPDX-FileCopyrightText: The KoZeRO authors
// SPDX-License-Identifier: Apache-2.0
// kernel_profile.cpp: Kokkos' callbacks, and marks on the stream that become seconds after a wait.
#include <kozero/run/kernel_profile.hpp>

#include <algorithm>
#include <cstring>
#include <Kokkos_Core.hpp>
#include <utility>

#include <kozero/core/error.hpp>
#include <kozero/core/views.hpp>

namespace kozero::run {
namespace {

/// Kokkos' callbacks have no argument for an object.
KernelProfile* current = nullptr;

double now() { return std::chrono::duration<double>(Event::Clock::now().time_since_epoch()).count(); }

}  // namespace

struct KernelProfile::Calls {
  static void begin_kernel(const char* name, std::uint32_t /*device*/, std::uint64_t* id) {
    *id = 0;
    current->begin(name);
  }
  static void end_kernel(std::uint64_t /*id*/) { current->end(); }
  /// Phases of a step ("update") are no kernels.
  static void push_region(const char* name) {
    if (std::strstr(name, "::") != nullptr) current->begin(name);
  }
  static void end_any() { current->end(); }
  static void begin_copy(Kokkos_Profiling_SpaceHandle /*to*/, const char* /*name*/, const void* /*memory*/,
                         Kokkos_Profiling_SpaceHandle /*from*/, const char* /*source*/, const void* /*source_memory*/,
                         std::uint64_t /*bytes*/) {
    current->begin("copy");
  }
  static void begin_fence(const char* name, std::uint32_t /*device*/, std::uint64_t* id) {
    *id = 0;
    current->begin_wait(name);
  }
  static void end_fence(std::uint64_t /*id*/) { current->end_wait(); }

  static void allocate(Kokkos_Profiling_SpaceHandle /*space*/, const char* /*name*/, const void* /*memory*/,
                       std::uint64_t bytes) {
    if (current->records() && bytes > 0) ++current->record_.allocations;  // teams allocate scratch of 0 bytes
  }

  static void set(bool on) {
    namespace tools = Kokkos::Tools::Experimental;
    tools::set_request_tool_settings_callback(
        on ? [](std::uint32_t, Kokkos_Tools_ToolSettings* settings) { settings->requires_global_fencing = false; }
           : static_cast<Kokkos_Tools_requestToolSettingsFunction>(nullptr));
    tools::set_begin_parallel_for_callback(on ? begin_kernel : nullptr);
    tools::set_end_parallel_for_callback(on ? end_kernel : nullptr);
    tools::set_begin_parallel_reduce_callback(on ? begin_kernel : nullptr);
    tools::set_end_parallel_reduce_callback(on ? end_kernel : nullptr);
    tools::set_push_region_callback(on ? push_region : nullptr);
    tools::set_pop_region_callback(on ? end_any : nullptr);
    tools::set_begin_deep_copy_callback(on ? begin_copy : nullptr);
    tools::set_end_deep_copy_callback(on ? end_any : nullptr);
    tools::set_begin_fence_callback(on ? begin_fence : nullptr);
    tools::set_end_fence_callback(on ? end_fence : nullptr);
    tools::set_allocate_data_callback(on ? allocate : nullptr);
  }
};

KernelProfile::KernelProfile() {
  require(current == nullptr, "KernelProfile: there is one already");
  current = this;
  Calls::set(true);
}

KernelProfile::~KernelProfile() {
  Calls::set(false);
  current = nullptr;
}

void KernelProfile::start(std::size_t most) {
  Device().fence("kozero::KernelProfile::start");
  thread_ = std::this_thread::get_id();
  depth_ = waiting_ = 0;
  skips_ = false;
  most_ = most;
  // A mark does not say its time. It is set just after the reading before it; of some tries the shortest one counts.
  // So a kernel never seems to end after the call that waited for it.
  auto shortest = Event::Clock::duration::max();
  for (int i = 0; i < 10; ++i) {
    const auto before = Event::Clock::now();
    const std::size_t mark = marks_.set();
    const auto duration = Event::Clock::now() - before;
    if (duration >= shortest) continue;
    shortest = duration;
    first_ = mark;
    record_.begin = before;
  }
  recording_ = true;
}

KernelProfile::Record KernelProfile::stop() {
  recording_ = false;
  if (depth_ > 0 && !skips_) marked_.back().end = marks_.set();  // within a region
  Device().fence("kozero::KernelProfile::stop");
  for (const Marked& each : std::exchange(marked_, {})) {
    record_.intervals.push_back({each.name, marks_.seconds(first_, each.begin), marks_.seconds(first_, each.end)});
  }
  return std::exchange(record_, {});
}

void KernelProfile::begin(const char* name) {
  if (!records() || depth_++ > 0) return;
  skips_ = marked_.size() >= most_;
  if (skips_) {
    ++record_.lost;
    return;
  }
  // Without text in brackets: "Kokkos::deep_copy" for "Kokkos::deep_copy [a=b]".
  const std::string whole = name;
  marked_.push_back({index_of(whole.substr(0, whole.find(" ["))), marks_.set(), 0});
}

void KernelProfile::end() {
  if (records() && depth_ > 0 && --depth_ == 0 && !skips_) marked_.back().end = marks_.set();
}

void KernelProfile::begin_wait(const char* of) {
  if (!records() || waiting_++ > 0) return;
  const std::string name = of;
  auto& waits = record_.waits;
  const auto found = std::ranges::find(waits, name, &Waits::name);
  wait_ = static_cast<std::size_t>(found - waits.begin());
  if (found == waits.end()) waits.push_back({name});
  ++waits[wait_].calls;
  waits[wait_].seconds -= now();
}

void KernelProfile::end_wait() {
  if (records() && --waiting_ == 0) record_.waits[wait_].seconds += now();
}

std::size_t KernelProfile::index_of(const std::string& name) {
  const auto found = std::ranges::find(record_.names, name);
  const auto index = static_cast<std::size_t>(found - record_.names.begin());
  if (found == record_.names.end()) record_.names.push_back(name);
  return index;
}

}  // namespace kozero::run
