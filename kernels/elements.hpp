// SPDX-FileCopyrightText: The KoZeRO authors
// SPDX-License-Identifier: Apache-2.0
// elements.hpp: one call of a body for each element of a flat extent, in parallel.
//   for_each_element(space, "kozero::fill", extent, KOKKOS_LAMBDA(std::int64_t i) { y[i] = ...; });
//   assign_elements(space, "kozero::gelu_backward", dx, inputs_of(dy, x),
//                   KOKKOS_LAMBDA(float upper, float v) { return ...; });
// The second one's dx(i) = T(...), of one element of each input, as float. On a GPU each thread takes an element there,
// and a pack (packs.hpp) here. On a host each index of the dispatch is a block of kElementBlock, an inner loop that the
// compiler turns into SIMD: the body is copied there, so that no store of it can change what it captured. Elements must
// not depend on each other; an output may be an input.
#pragma once
#include <cstdint>
#include <Kokkos_Core.hpp>
#include <string>
#include <utility>

#include <kozero/core/views.hpp>
#include <kozero/kernels/packs.hpp>
#include <kozero/kernels/stored_run.hpp>

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

/// What assign_elements reads: arrays of one type.
template <class T, int kCount>
using InputArrays = Kokkos::Array<const T*, kCount>;

template <class T, class... View>
auto inputs_of(const Vector<const T>& first, const View&... more) {
  return InputArrays<T, 1 + sizeof...(View)>{first.data(), more.data()...};
}

/// out(i) = T(f(in[0](i), in[1](i), ...)) for i in [0, extent).
template <class T, class In, int kInputs, class F>
struct Assignment {
  static constexpr int kCount = kPackOf<T, In>;
  T* out;
  InputArrays<In, kInputs> in;
  F f;
  std::int64_t extent;

  /// The elements of block `block`, on a host.
  template <int... kPlaces>
  void assign_block(std::int64_t block, std::integer_sequence<int, kPlaces...> /*places*/) const {
    const std::int64_t first = block * kElementBlock;
    const std::int64_t end = first + kElementBlock < extent ? first + kElementBlock : extent;
    const auto value = [at = in, f = f, first](std::int64_t i) {
      return f(static_cast<float>(at[kPlaces][first + i])...);
    };
    store_run(out + first, end - first, value);
  }

  /// The elements of pack `pack`, on a GPU.
  template <int... kPlaces>
  KOKKOS_FUNCTION void assign_pack(std::int64_t pack, std::integer_sequence<int, kPlaces...> /*places*/) const {
    const std::int64_t first = pack * kCount;
    const std::int64_t count = first + kCount < extent ? kCount : extent - first;
    assign_share<1>(out + first, count, 0, 1, f, (in[kPlaces] + first)...);
  }

  KOKKOS_FUNCTION void operator()(std::int64_t part) const {
    constexpr auto kPlaces = std::make_integer_sequence<int, kInputs>();
    KOKKOS_IF_ON_HOST((assign_block(part, kPlaces);))
    KOKKOS_IF_ON_DEVICE((assign_pack(part, kPlaces);))
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

template <class Space, class T, class In, std::size_t kInputs, class F>
void assign_elements(const Space& space, const std::string& label, Vector<T> out,
                     const Kokkos::Array<const In*, kInputs>& in, const F& f) {
  using Policy = Kokkos::RangePolicy<Space, Kokkos::IndexType<std::int64_t>>;
  using Assigned = Assignment<T, In, static_cast<int>(kInputs), F>;
  const auto extent = static_cast<std::int64_t>(out.extent(0));
  const std::int64_t part = runs_on_host<Space> ? kElementBlock : Assigned::kCount;
  if (extent == 0) return;
  Kokkos::parallel_for(label, Policy(space, 0, (extent + part - 1) / part), Assigned{out.data(), in, f, extent});
}

}  // namespace kozero::kernels
