// SPDX-FileCopyrightText: The KoZeRO authors
// SPDX-License-Identifier: Apache-2.0
#include <sched.h>
#include <algorithm>
#include <atomic>
#include <cstdlib>
#include <filesystem>

#if defined(__SSE__)
#include <xmmintrin.h>
#endif

#include <kozero/core/device.hpp>
#include <kozero/core/views.hpp>
#include <kozero/train/runtime.hpp>

namespace kozero::train {
namespace {

Surroundings surroundings_of(std::int64_t threads, const dist::Environment& environment) {
  const char* num_threads = std::getenv("OMP_NUM_THREADS");
  const char* proc_bind = std::getenv("OMP_PROC_BIND");
  const int wanted = num_threads == nullptr ? 0 : std::atoi(num_threads);
  return {.cores = cores_of(allowed_cpus()),
          .sharers = environment.cpu_sharers(),
          .sharer = environment.cpu_sharer(),
          .asked_threads = threads > 0 ? static_cast<int>(threads) : std::max(0, wanted),
          .proc_bind = proc_bind == nullptr ? "" : proc_bind};
}

/// `body(thread)` once on each of the host's threads.
template <class Body>
void on_each_thread(const char* label, int threads, const Body& body) {
  const Host space;
  Kokkos::parallel_for(label, Kokkos::RangePolicy<Host, Kokkos::Schedule<Kokkos::Static>>(space, 0, threads), body);
  space.fence(label);
}

/// Denormal operands and results of the calling thread count as zero from now on.
void flush_denormals() {
#if defined(__SSE__)
  _mm_setcsr(_mm_getcsr() | 0x8040U);  // FTZ and DAZ
#elif defined(__aarch64__)
  std::uint64_t control = 0;
  asm volatile("mrs %0, fpcr" : "=r"(control));
  asm volatile("msr fpcr, %0" : : "r"(control | std::uint64_t{1} << 24U));  // FZ, which is both
#endif
}

}  // namespace

void run_on_any_cpu() {
  cpu_set_t all;
  CPU_ZERO(&all);
  std::error_code problem;
  for (std::filesystem::directory_iterator thread("/proc/self/task", problem), end; !problem && thread != end;
       thread.increment(problem)) {
    cpu_set_t one;
    CPU_ZERO(&one);
    const int id = std::atoi(thread->path().filename().c_str());
    if (sched_getaffinity(id, sizeof(one), &one) == 0) CPU_OR(&all, &all, &one);
  }
  // Where it is refused the thread stays on one core: slower, not wrong.
  if (CPU_COUNT(&all) > 0) static_cast<void>(sched_setaffinity(0, sizeof(all), &all));
}

Runtime::Runtime(std::int64_t threads, const dist::Environment& environment)
    : placement_(thread_placement(surroundings_of(threads, environment))) {
  auto settings = Kokkos::InitializationSettings().set_num_threads(placement_.threads).set_disable_warnings(true);
  const int gpus = Kokkos::num_devices();  // -1 on a host build
  if (gpus > 0) settings.set_device_id(environment.local_rank() % gpus);
  kokkos_.emplace(settings);
  if (gpus > 0) placement_.text += ", " + device_name();
  bind_threads();
  on_each_thread("kozero::flush_denormals", placement_.threads, [](const int) { flush_denormals(); });
}

std::string Runtime::crowding() const { return kHostIsDevice ? placement_.crowding : ""; }

void Runtime::bind_threads() {
  if (placement_.cpus.empty()) return;
  std::atomic<bool> bound = true;
  on_each_thread("kozero::bind_threads", placement_.threads, [&](const int thread) {
    if (!bind_this_thread(placement_.cpus[static_cast<std::size_t>(thread)])) bound = false;
  });
  if (!bound) placement_.text += " (refused by the system)";
}

}  // namespace kozero::train
