// SPDX-FileCopyrightText: The KoZeRO authors
// SPDX-License-Identifier: Apache-2.0
// runtime.hpp: Kokkos with this rank's threads, each where it stays, flushing denormals, and on a GPU build with its
// GPU: rank r of a node has the GPU r modulo their number.
// Denormal moments slow AdamW tenfold, so FTZ and DAZ are set on every thread, always: results depend on them.
#pragma once
#include <optional>
#include <string>

#include <Kokkos_Core.hpp>

#include <kozero/dist/environment.hpp>
#include <kozero/train/thread_placement.hpp>

namespace kozero::train {

/// Lets the calling thread run wherever this rank's threads may: it inherits the one core that its maker is bound to.
void run_on_any_cpu();

class Runtime {
 public:
  /// `threads` of this rank; 0: OMP_NUM_THREADS, or else the cores of its share.
  /// They are bound as ThreadPlacement says.
  Runtime(std::int64_t threads, const dist::Environment& environment);

  [[nodiscard]] int threads() const { return placement_.threads; }
  /// "2 threads bound to CPUs 0-1", and the GPU.
  [[nodiscard]] const std::string& placement() const { return placement_.text; }
  /// ThreadPlacement::crowding; "" where arrays lie on a GPU.
  [[nodiscard]] std::string crowding() const;

 private:
  void bind_threads();

  ThreadPlacement placement_;
  std::optional<Kokkos::ScopeGuard> kokkos_;
};

}  // namespace kozero::train
