// SPDX-FileCopyrightText: The KoZeRO authors
// SPDX-License-Identifier: Apache-2.0
// bit_hash.hpp: 64 bits that tell whether any bit of a vector changed.
//   hash = sum over i of mix(2^32 i + bits of x_i) mod 2^64          mix: the finalizer of splitmix64, a bijection
// A sum of integers is the same for every number of threads and on every device. Since mix is a bijection, a change of
// one element always changes the hash; changes of several elements cancel with probability 2^-64. It is no signature.
// Runs on `space` and returns a value of the host: it fences.
// Steele, Lea, Flood 2014, "Fast splittable pseudorandom number generators", doi:10.1145/2660193.2660195.
#pragma once
#include <type_traits>

#include <kozero/core/views.hpp>
#include <kozero/kernels/elements.hpp>

namespace kozero::kernels {

template <class T>
struct BitHash {
  const T* x;
  std::int64_t extent;
  std::int64_t block_extent;

  KOKKOS_INLINE_FUNCTION static std::uint32_t bits_of(const T& value) {
    if constexpr (std::is_same_v<T, float>) {
      return Kokkos::bit_cast<std::uint32_t>(value);
    } else {
      return value.bits();
    }
  }

  KOKKOS_INLINE_FUNCTION static std::uint64_t mixed(std::uint64_t word) {
    word = (word ^ (word >> 30)) * 0xBF58476D1CE4E5B9ULL;
    word = (word ^ (word >> 27)) * 0x94D049BB133111EBULL;
    return word ^ (word >> 31);
  }

  KOKKOS_FUNCTION void operator()(std::int64_t block, std::uint64_t& sum) const {
    const std::int64_t first = block * block_extent;
    const std::int64_t end = first + block_extent < extent ? first + block_extent : extent;
    std::uint64_t local = 0;
    for (std::int64_t i = first; i < end; ++i) {
      local += mixed((static_cast<std::uint64_t>(i) << 32) + bits_of(x[i]));
    }
    sum += local;
  }
};

/// Of float, Bfloat16 or Float16.
template <class Space, class T>
std::uint64_t bit_hash(const Space& space, Vector<const T> x) {
  const auto extent = static_cast<std::int64_t>(x.extent(0));
  const std::int64_t block_extent = runs_on_host<Space> ? kElementBlock : 1;
  const std::int64_t blocks = (extent + block_extent - 1) / block_extent;
  std::uint64_t hash = 0;
  Kokkos::parallel_reduce("kozero::bit_hash",
                          Kokkos::RangePolicy<Space, Kokkos::IndexType<std::int64_t>>(space, 0, blocks),
                          BitHash<T>{x.data(), extent, block_extent}, Kokkos::Sum<std::uint64_t>(hash));
  return hash;
}

}  // namespace kozero::kernels
