// SPDX-FileCopyrightText: The KoZeRO authors
// SPDX-License-Identifier: Apache-2.0
// elements.hpp: one call of a body for each element of a flat extent, in parallel.
//   for_each_element(space, "kozero::fill", extent, KOKKOS_LAMBDA(std::int64_t i) { y[i] = ...; });
//   assign_elements(space, "kozero::gelu_forward", y, KOKKOS_LAMBDA(std::int64_t i) { return ...; });    y(i) = T(...)
// On a GPU each thread takes an element. On a host each index of the dispatch is a block of kElementBlock, an inner
// loop that the compiler turns into SIMD: the body is copied there, so that no store of it can change what it captured.
// Elements must not depend on each other; a body may read and write the same element of one array.
#pragma once
#include <cstdint>
#include <Kokkos_Core.hpp>
#include <string>

#include <kozero/core/views.hpp>
#include <kozero/kernels/stored_run.hpp>
#include <kozero/kernels/unrolled.hpp>

namespace kozero::kernels {

inline constexpr std::int64_t kElementBlock = 4096;

/// Whether the space's threads run on the host, each with SIMD lanes of its own.
template <class Space>
inline constexpr bool runs_on_host =
    Kokkos::SpaceAccessibility<Kokkos::HostSpace, typename Space::memory_space>::accessible;

/// Calls the body for the elements of block `block`.
template <class Body>
struct ElementBlock {
  Body body;
  std::int64_t extent;

  KOKKOS_FUNCTION void operator()(std::int64_t block) const {
    const Body local = body;
    const std::int64_t first = block * kElementBlock;
    const std::int64_t end = first + kElementBlock < extent ? first + kElementBlock : extent;
    simd_loop(end - first, [=](std::int64_t i) { local(first + i); });
  }
};

/// Stores the values of the elements of block `block`.
template <class T, class Value>
struct AssignedBlock {
  T* out;
  Value value;
  std::int64_t extent;

  void operator()(std::int64_t block) const {
    const std::int64_t first = block * kElementBlock;
    const std::int64_t end = first + kElementBlock < extent ? first + kElementBlock : extent;
    store_run(out + first, end - first, [first, at = value](std::int64_t i) { return at(first + i); });
  }
};

/// One GPU thread's elements: kInFlight of them, read before they are stored, each kNeighbours behind the one before, so
/// that neighbouring threads read and store neighbouring elements.
template <class T, class Value>
struct AssignedShare {
  static constexpr int kInFlight = 8;
  static constexpr std::int64_t kNeighbours = 256;
  T* out;
  Value value;
  std::int64_t extent;

  /// Threads for all elements.
  [[nodiscard]] std::int64_t threads() const {
    constexpr std::int64_t kBlock = kNeighbours * kInFlight;
    return (extent + kBlock - 1) / kBlock * kNeighbours;
  }

  KOKKOS_FUNCTION void operator()(std::int64_t thread) const {
    const std::int64_t first = thread / kNeighbours * (kNeighbours * kInFlight) + thread % kNeighbours;
    float values[kInFlight];
    KOZERO_UNROLLED
    for (int k = 0; k < kInFlight; ++k) {
      const std::int64_t i = first + k * kNeighbours;
      values[k] = i < extent ? value(i) : 0.0F;
    }
    KOZERO_UNROLLED
    for (int k = 0; k < kInFlight; ++k) {
      const std::int64_t i = first + k * kNeighbours;
      if (i < extent) out[i] = static_cast<T>(values[k]);
    }
  }
};

template <class Space, class Body>
void for_each_element(const Space& space, const std::string& label, std::int64_t extent, const Body& body) {
  using Policy = Kokkos::RangePolicy<Space, Kokkos::IndexType<std::int64_t>>;
  if (extent == 0) return;
  if constexpr (runs_on_host<Space>) {
    const std::int64_t blocks = (extent + kElementBlock - 1) / kElementBlock;
    Kokkos::parallel_for(label, Policy(space, 0, blocks), ElementBlock<Body>{body, extent});
  } else {
    Kokkos::parallel_for(label, Policy(space, 0, extent), body);
  }
}

template <class Space, class T, class Value>
void assign_elements(const Space& space, const std::string& label, Vector<T> out, const Value& value) {
  using Policy = Kokkos::RangePolicy<Space, Kokkos::IndexType<std::int64_t>>;
  const auto extent = static_cast<std::int64_t>(out.extent(0));
  if (extent == 0) return;
  if constexpr (runs_on_host<Space>) {
    const std::int64_t blocks = (extent + kElementBlock - 1) / kElementBlock;
    Kokkos::parallel_for(label, Policy(space, 0, blocks), AssignedBlock<T, Value>{out.data(), value, extent});
  } else {
    const AssignedShare<T, Value> share{out.data(), value, extent};
    Kokkos::parallel_for(label, Policy(space, 0, share.threads()), share);
  }
}

}  // namespace kozero::kernels
