// SPDX-FileCopyrightText: The KoZeRO authors
// SPDX-License-Identifier: Apache-2.0
#include <sched.h>
#include <algorithm>
#include <cstdlib>
#include <vector>

#if defined(__SSE__)
#include <xmmintrin.h>
#endif

#include <kozero/core/views.hpp>
#include <kozero/train/runtime.hpp>

namespace kozero::train {
namespace {

std::vector<int> allowed_cpus() {
  cpu_set_t set;
  CPU_ZERO(&set);
  std::vector<int> cpus;
  if (sched_getaffinity(0, sizeof(set), &set) != 0) return cpus;
  for (int cpu = 0; cpu < CPU_SETSIZE; ++cpu) {
    if (CPU_ISSET(cpu, &set)) cpus.push_back(cpu);
  }
  return cpus;
}

/// CPU numbers as ranges: "0-3,6".
std::string as_ranges(const std::vector<int>& cpus) {
  std::string text;
  for (std::size_t i = 0; i < cpus.size(); ++i) {
    std::size_t last = i;
    while (last + 1 < cpus.size() && cpus[last + 1] == cpus[last] + 1) ++last;
    text += (text.empty() ? "" : ",") + std::to_string(cpus[i]);
    if (last > i) text += "-" + std::to_string(cpus[last]);
    i = last;
  }
  return text;
}

int default_threads(int cpu_sharers) {
  const char* variable = std::getenv("OMP_NUM_THREADS");
  const int wanted = variable == nullptr ? 0 : std::atoi(variable);
  if (wanted > 0) return wanted;
  return std::max(1, static_cast<int>(allowed_cpus().size()) / cpu_sharers);
}

void flush_denormals() {
#if defined(__SSE__)
  const Host space;
  Kokkos::parallel_for("kozero::flush_denormals",
                       Kokkos::RangePolicy<Host, Kokkos::Schedule<Kokkos::Static>>(space, 0, space.concurrency()),
                       [](const int) { _mm_setcsr(_mm_getcsr() | 0x8040U); });
  space.fence("kozero::flush_denormals");
#endif
}

}  // namespace

Runtime::Runtime(std::int64_t threads, int cpu_sharers)
    : threads_(threads > 0 ? static_cast<int>(threads) : default_threads(cpu_sharers)) {
  kokkos_.emplace(Kokkos::InitializationSettings().set_num_threads(threads_).set_disable_warnings(true));
  flush_denormals();
}

std::string Runtime::placement() const {
  return std::to_string(threads_) + (threads_ == 1 ? " thread" : " threads") + " on CPUs " + as_ranges(allowed_cpus());
}

}  // namespace kozero::train
