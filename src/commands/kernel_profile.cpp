// SPDX-FileCopyrightText: The KoZeRO authors
// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <chrono>
#include <Kokkos_Core.hpp>

#include <kozero/core/error.hpp>
#include <kozero/core/views.hpp>

#include "kernel_profile.hpp"

namespace kozero::commands {
namespace {

/// Kokkos' callbacks know no object.
KernelProfile* current = nullptr;

double now() { return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count(); }

/// "Kokkos::deep_copy [a=b]" and its kind lose what is in brackets.
std::string short_name(const char* name) {
  const std::string whole = name;
  return whole.substr(0, whole.find(" ["));
}

}  // namespace

struct KernelProfile::Calls {
  static void begin_kernel(const char* name, std::uint32_t /*device*/, std::uint64_t* id) {
    *id = 0;
    current->begin(short_name(name));
  }
  static void end_kernel(std::uint64_t /*id*/) { current->end(); }
  static void push_region(const char* name) { current->begin(name); }
  static void end_any() { current->end(); }
  static void begin_copy(Kokkos_Profiling_SpaceHandle /*to*/, const char* /*name*/, const void* /*memory*/,
                         Kokkos_Profiling_SpaceHandle /*from*/, const char* /*source*/, const void* /*source_memory*/,
                         std::uint64_t /*bytes*/) {
    current->begin("copy");
  }
  static void begin_fence(const char* /*name*/, std::uint32_t /*device*/, std::uint64_t* id) {
    *id = 0;
    if (!current->recording_ || current->waiting_++ > 0) return;
    ++current->waits_;
    current->waited_ -= now();
  }
  static void end_fence(std::uint64_t /*id*/) {
    if (current->recording_ && --current->waiting_ == 0) current->waited_ += now();
  }

  static void allocate(Kokkos_Profiling_SpaceHandle /*space*/, const char* /*name*/, const void* /*memory*/,
                       std::uint64_t bytes) {
    if (current->recording_ && bytes > 0) ++current->allocations_;  // teams take scratch of 0 bytes
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

void KernelProfile::start() {
  Device().fence("kozero::KernelProfile::start");
  recording_ = true;
}

KernelProfile::Result KernelProfile::stop() {
  recording_ = false;
  Device().fence("kozero::KernelProfile::stop");
  require(!pieces_.empty(), "KernelProfile: no kernel ran");
  Result result;
  for (const auto& name : names_) result.kernels.push_back({name});
  for (const auto& piece : pieces_) {
    Kernel& kernel = result.kernels[piece.name];
    const double seconds = marks_.seconds(piece.begin, piece.end);
    ++kernel.calls;
    kernel.seconds += seconds;
    result.in_kernels += seconds;
  }
  result.span = marks_.seconds(pieces_.front().begin, pieces_.back().end);
  result.waits = waits_;
  result.waited = waited_;
  result.allocations = allocations_;
  std::sort(result.kernels.begin(), result.kernels.end(),
            [](const Kernel& a, const Kernel& b) { return a.seconds > b.seconds; });
  return result;
}

void KernelProfile::begin(const std::string& name) {
  if (!recording_ || depth_++ > 0) return;
  pieces_.push_back({index_of(name), marks_.set(), 0});
}

void KernelProfile::end() {
  if (recording_ && --depth_ == 0) pieces_.back().end = marks_.set();
}

std::size_t KernelProfile::index_of(const std::string& name) {
  const auto place = std::find(names_.begin(), names_.end(), name);
  if (place == names_.end()) names_.push_back(name);
  return static_cast<std::size_t>(std::find(names_.begin(), names_.end(), name) - names_.begin());
}

}  // namespace kozero::commands
