// SPDX-FileCopyrightText: The KoZeRO authors
// SPDX-License-Identifier: Apache-2.0
// attention_tasks.hpp: attention's tasks on the threads of a host, each thread with scratch of its own.
// Tasks are taken in turn by whoever is free; none reads what another writes, so bits do not depend on who takes which.
#pragma once
#include <cstdint>
#include <Kokkos_Core.hpp>

#include <kozero/core/error.hpp>
#include <kozero/core/views.hpp>

namespace kozero::kernels {

inline constexpr std::int64_t kLineFloats = 16;  ///< floats of a cache line

/// Cuts a thread's scratch into arrays that begin on cache lines; without memory it only counts.
class ScratchCutter {
 public:
  explicit ScratchCutter(float* memory) : memory_(memory) {}

  template <class T>
  T* take(std::int64_t elements) {
    float* const begin = memory_ == nullptr ? nullptr : memory_ + extent_;
    const std::int64_t bytes = elements * static_cast<std::int64_t>(sizeof(T));
    constexpr std::int64_t kLineBytes = kLineFloats * 4;
    extent_ += (bytes + kLineBytes - 1) / kLineBytes * kLineFloats;
    return reinterpret_cast<T*>(begin);
  }
  /// Floats handed out so far.
  [[nodiscard]] std::int64_t extent() const { return extent_; }

 private:
  float* memory_;
  std::int64_t extent_ = 0;
};

/// Floats of workspace for `scratch` floats a thread, wherever the workspace begins.
inline std::int64_t workspace_of_threads(std::int64_t scratch) {
  return Device().concurrency() * scratch + kLineFloats;
}

/// Calls task(index, scratch) for each index, on all threads, each with `scratch` floats that begin on a cache line.
template <class Space, class Task>
void for_each_task(const Space& space, const char* label, std::int64_t tasks, std::int64_t scratch,
                   Vector<float> workspace, const Task& task) {
  if (tasks == 0) return;
  require(static_cast<std::int64_t>(workspace.extent(0)) >= scratch * space.concurrency() + kLineFloats,
          "attention: the workspace is too small");
  const auto misplaced = reinterpret_cast<std::uintptr_t>(workspace.data()) / sizeof(float) % kLineFloats;
  float* const begin = workspace.data() + (kLineFloats - misplaced) % kLineFloats;
  using Policy = Kokkos::RangePolicy<Space, Kokkos::Schedule<Kokkos::Dynamic>, Kokkos::IndexType<std::int64_t>>;
  const Kokkos::Experimental::UniqueToken<Space> threads(space);
  Kokkos::parallel_for(label, Policy(space, 0, tasks, Kokkos::ChunkSize(1)), [=](std::int64_t index) {
    const auto thread = threads.acquire();
    task(index, begin + thread * scratch);
    threads.release(thread);
  });
}

}  // namespace kozero::kernels
