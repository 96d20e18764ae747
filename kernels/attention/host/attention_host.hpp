// SPDX-FileCopyrightText: The KoZeRO authors
// SPDX-License-Identifier: Apache-2.0
// attention_host.hpp: attention.hpp on a host, in blocks of 32 keys by 32 queries on a tile unit of the processor, and
// its tasks and per-thread scratch. Up to the diagonal:
//   forward    S^T = K Q^T      P^T = exp(S^T / sqrt(D) - l)                 Y^T = V^T (m P)^T
//   backward   dP^T = V dY^T    dS^T = P^T * (m dP^T - rowsum(dY * Y))
//              dV += (m P)^T dY      dK += dS^T Q / sqrt(D)      dQ^T += K^T dS^T / sqrt(D)
// Scores are computed transposed, so that P^T and dS^T are operands of the next products without a transposition. In
// pairs of bf16, P and dS are rounded before those products; other units multiply 16-bit numbers as float; all sums are
// in float. No task reads the output of another, so bits depend only on the unit, and are the same on all units of
// floats. The contract is attention.hpp's; scratch is per thread, in floats.
#pragma once
#include <cstdint>
#include <Kokkos_Core.hpp>

#include <kozero/core/error.hpp>
#include <kozero/core/ledger.hpp>
#include <kozero/core/views.hpp>
#include "kernels/attention/attention.hpp"
#include "kernels/matmul/host/tile_units.hpp"

namespace kozero::kernels {

inline constexpr std::int64_t kLineFloats = 16;  ///< floats of a cache line

/// Floats of workspace for `scratch` floats per thread, for any alignment of the workspace.
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

template <class T>
std::int64_t attention_tiles_forward_scratch(const TileUnit& unit, const AttentionShape& shape);

template <class T>
std::int64_t attention_tiles_backward_scratch(const TileUnit& unit, const AttentionShape& shape);

template <class Space, class T>
void attention_tiles_forward(const Space& space, const TileUnit& unit, Matrix<T> y, Matrix<float> logsumexp,
                             MatrixIn<T> qkv, const AttentionShape& shape, Vector<float> workspace);

template <class Space, class T>
void attention_tiles_backward(const Space& space, const TileUnit& unit, Matrix<T> dqkv, MatrixIn<T> dy, MatrixIn<T> y,
                              Matrix<const float> logsumexp, MatrixIn<T> qkv, const AttentionShape& shape,
                              Vector<float> workspace);

}  // namespace kozero::kernels
