// SPDX-FileCopyrightText: The KoZeRO authors
// SPDX-License-Identifier: Apache-2.0
// runtime.hpp: Kokkos with this rank's threads, flushing denormals, and where the threads may run.
// Denormal moments slow AdamW tenfold, so FTZ and DAZ are set on every thread, always: results depend on them.
#pragma once
#include <optional>
#include <string>

#include <Kokkos_Core.hpp>

namespace kozero::train {

class Runtime {
 public:
  /// `threads` of this rank; 0: OMP_NUM_THREADS, or else the CPUs this process may use, shared with `cpu_sharers` - 1 other
  /// ranks that may use the same.
  Runtime(std::int64_t threads, int cpu_sharers);

  [[nodiscard]] int threads() const { return threads_; }
  /// "2 threads on CPUs 0-1".
  [[nodiscard]] std::string placement() const;

 private:
  int threads_;
  std::optional<Kokkos::ScopeGuard> kokkos_;
};

}  // namespace kozero::train
