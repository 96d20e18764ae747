// SPDX-FileCopyrightText: The KoZeRO authors
// SPDX-License-Identifier: Apache-2.0
// reduce.hpp: reductions of a whole vector (sum, sum of squares, first non-finite value, hash), the maximum of a row
// and two sums over a row.
//   hash = sum over i of mix(2^32 i + word_i) mod 2^64          mix: the finalizer of splitmix64, a bijection
// Sums are in double, by blocks of kSumBlock elements added in block order, so host bits depend only on the extent and
// the values, not on the threads; on a GPU the device fixes the order. Functions that return a host value fence; those
// that write to HostScalars do not. The hash is an integer sum and is the same on every device.
#pragma once
#include <algorithm>
#include <array>
#include <cmath>
#include <cstdint>
#include <Kokkos_Core.hpp>
#include <type_traits>
#include <utility>

#include <kozero/core/views.hpp>
#include "kernels/launch/for_each.hpp"

namespace kozero::kernels {

inline constexpr std::int64_t kSumBlock = 4096;  ///< elements of a block

/// The terms of a sum, for each element.
struct Itself {
  KOKKOS_INLINE_FUNCTION double operator()(float x) const { return x; }
};
struct Square {
  KOKKOS_INLINE_FUNCTION double operator()(float x) const { return static_cast<double>(x) * static_cast<double>(x); }
};

/// The sum over one block of at most kSumBlock elements, by 16 lanes.
template <class Term, class T>
double block_sum(const T* x, std::int64_t extent) {
  constexpr int kSumLanes = 16;
  double lanes[kSumLanes] = {};
  std::int64_t i = 0;
  for (; i + kSumLanes <= extent; i += kSumLanes) {
    for (int lane = 0; lane < kSumLanes; ++lane) lanes[lane] += Term()(static_cast<float>(x[i + lane]));
  }
  for (int lane = 0; i + lane < extent; ++lane) lanes[lane] += Term()(static_cast<float>(x[i + lane]));
  double sum = 0.0;
  for (const double lane : lanes) sum += lane;
  return sum;
}

/// Host: writes block sums of a run of blocks that starts at `x`.
template <class Term, class T>
struct BlockSums {
  const T* x;
  std::int64_t extent;
  double* sums;

  void operator()(std::int64_t block) const {
    const std::int64_t first = block * kSumBlock;
    sums[block] = block_sum<Term>(x + first, std::min(kSumBlock, extent - first));
  }
};

/// Device: each thread adds packs (packs.hpp) at a stride that depends only on the extent, then single elements.
template <class Term, class T>
struct StridedSum {
  static constexpr int kCount = kPackOf<T>;
  const T* x;
  std::int64_t extent;
  std::int64_t stride;

  KOKKOS_FUNCTION void operator()(std::int64_t first, double& sum) const {
    if (is_aligned(x)) {
      add_packs<true>(first, sum);
    } else {
      add_packs<false>(first, sum);
    }
    for (std::int64_t i = extent / kCount * kCount + first; i < extent; i += stride) {
      sum += Term()(static_cast<float>(x[i]));
    }
  }

  template <bool kAligned>
  KOKKOS_FUNCTION void add_packs(std::int64_t first, double& sum) const {
    KOZERO_UNROLLED_BY(4)
    for (std::int64_t pack = first; pack < extent / kCount; pack += stride) {
      const Pack<kCount> values = load_pack<kCount, kAligned>(x + pack * kCount);
      for (int k = 0; k < kCount; ++k) sum += Term()(values.x[k]);
    }
  }
};

template <class Term, class Space, class T>
double sum_on_host(const Space& space, const std::string& label, Vector<const T> x) {
  constexpr std::int64_t kBlocksAtOnce = 1024;
  using Policy = Kokkos::RangePolicy<Space, Kokkos::IndexType<std::int64_t>>;
  const auto extent = static_cast<std::int64_t>(x.extent(0));
  std::array<double, kBlocksAtOnce> sums{};
  double total = 0.0;
  for (std::int64_t first = 0; first < extent; first += kBlocksAtOnce * kSumBlock) {
    const std::int64_t rest = std::min(extent - first, kBlocksAtOnce * kSumBlock);
    const std::int64_t blocks = (rest + kSumBlock - 1) / kSumBlock;
    Kokkos::parallel_for(label, Policy(space, 0, blocks), BlockSums<Term, T>{x.data() + first, rest, sums.data()});
    space.fence(label);
    for (std::int64_t block = 0; block < blocks; ++block) total += sums[static_cast<std::size_t>(block)];
  }
  return total;
}

/// `sum` is a double, which requires a fence, or a view of one.
template <class Term, class Space, class T, class Sum>
void sum_on_device(const Space& space, const std::string& label, Vector<const T> x, Sum&& sum) {
  const auto extent = static_cast<std::int64_t>(x.extent(0));
  constexpr std::int64_t kMostThreads = 1 << 18;
  const std::int64_t threads = std::min(extent, kMostThreads);
  Kokkos::parallel_reduce(label, Kokkos::RangePolicy<Space, Kokkos::IndexType<std::int64_t>>(space, 0, threads),
                          StridedSum<Term, T>{x.data(), extent, threads}, std::forward<Sum>(sum));
}

template <class Term, class Space, class T>
double sum_terms(const Space& space, const std::string& label, Vector<const T> x) {
  double total = 0.0;
  if constexpr (runs_on_host<Space>) {
    total = sum_on_host<Term>(space, label, x);
  } else {
    sum_on_device<Term>(space, label, x, total);
  }
  return total;
}

template <class Term, class Space, class T>
void put_sum_of_terms(const Space& space, const std::string& label, Vector<const T> x, double* sum) {
  if constexpr (runs_on_host<Space>) {
    *sum = sum_on_host<Term>(space, label, x);
  } else {
    sum_on_device<Term>(space, label, x, Kokkos::View<double, Kokkos::SharedHostPinnedSpace, Unmanaged>(sum));
  }
}

/// The sum of all elements.
template <class Space>
double sum_in_blocks(const Space& space, Vector<const float> x) {
  return sum_terms<Itself>(space, "kozero::sum_in_blocks", x);
}

/// *sum = the sum of all elements; `sum` points into HostScalars.
template <class Space>
void put_sum_in_blocks(const Space& space, Vector<const float> x, double* sum) {
  put_sum_of_terms<Itself>(space, "kozero::sum_in_blocks", x, sum);
}

/// The sum of the elements' squares.
template <class Space, class T>
double sum_of_squares(const Space& space, Vector<T> x) {
  return sum_terms<Square>(space, "kozero::sum_of_squares", Vector<const T>(x));
}

/// Lowers `smallest` to a block's first element whose exponent bits are all ones: an infinity or NaN.
struct FirstNonFinite {
  const float* x;
  std::int64_t extent;
  std::int64_t block_extent;

  KOKKOS_INLINE_FUNCTION static std::uint32_t magnitude_bits(float value) {
    return Kokkos::bit_cast<std::uint32_t>(value) & 0x7FFFFFFFU;
  }

  KOKKOS_FUNCTION void operator()(std::int64_t block, std::int64_t& smallest) const {
    constexpr std::uint32_t kInfinity = 0x7F800000U;
    const std::int64_t first = block * block_extent;
    const std::int64_t end = first + block_extent < extent ? first + block_extent : extent;
    std::uint32_t largest = 0;
    for (std::int64_t i = first; i < end; ++i) {
      const std::uint32_t bits = magnitude_bits(x[i]);
      largest = bits > largest ? bits : largest;
    }
    if (largest < kInfinity) return;
    std::int64_t i = first;
    while (magnitude_bits(x[i]) < kInfinity) ++i;
    smallest = i < smallest ? i : smallest;
  }
};

/// The smallest index whose element is an infinity or NaN, or -1.
template <class Space>
std::int64_t first_non_finite(const Space& space, Vector<const float> x) {
  const auto extent = static_cast<std::int64_t>(x.extent(0));
  const std::int64_t block_extent = runs_on_host<Space> ? kSumBlock : 1;
  const std::int64_t blocks = (extent + block_extent - 1) / block_extent;
  std::int64_t first = extent;
  Kokkos::parallel_reduce("kozero::first_non_finite",
                          Kokkos::RangePolicy<Space, Kokkos::IndexType<std::int64_t>>(space, 0, blocks),
                          FirstNonFinite{x.data(), extent, block_extent}, Kokkos::Min<std::int64_t>(first));
  return first < extent ? first : -1;
}

/// The largest value(c) over c in [0, columns), on one host thread. Ignores NaN; -infinity without values.
template <class Value>
KOKKOS_INLINE_FUNCTION float lane_max(std::int64_t columns, const Value& value) {
  float lanes[kLanes];
  for (int lane = 0; lane < kLanes; ++lane) lanes[lane] = -Kokkos::Experimental::infinity_v<float>;
  const auto keep_larger = [&](int lane, float x) { lanes[lane] = x > lanes[lane] ? x : lanes[lane]; };
  std::int64_t c = 0;
  for (; c + kLanes <= columns; c += kLanes) {
    for (int lane = 0; lane < kLanes; ++lane) keep_larger(lane, value(c + lane));
  }
  for (int lane = 0; c + lane < columns; ++lane) keep_larger(lane, value(c + lane));
  for (int lane = 1; lane < kLanes; ++lane) keep_larger(0, lanes[lane]);
  return lanes[0];
}

/// The largest x[c] over c in [0, columns), the same on all lanes of the worker.
template <class Team, class T>
KOKKOS_INLINE_FUNCTION float row_max(const Team& team, std::int64_t columns, const T* x) {
  KOKKOS_IF_ON_HOST(
      (static_cast<void>(team); return lane_max(columns, [=](std::int64_t c) { return static_cast<float>(x[c]); });))
  KOKKOS_IF_ON_DEVICE((const std::int64_t lanes = lanes_of(team); float largest = 0.0F; Kokkos::parallel_reduce(
                           columns_of(team, lanes),
                           [&](std::int64_t lane, float& so_far) {
                             const auto itself = [](float value) { return value; };
                             so_far = Largest::of(so_far, fold_share<Largest>(columns, lane, lanes, itself, x));
                           },
                           Kokkos::Max<float>(largest));
                       return largest;))
}

/// 64 bits that change if a bit of a vector changes. Since mix is a bijection, a change of one word always changes the
/// hash; changes of several words cancel with probability 2^-64. The hash is not a signature.
/// Steele, Lea, Flood 2014, "Fast splittable pseudorandom number generators", doi:10.1145/2660193.2660195.
struct BitHash {
  const std::uint32_t* words;
  std::int64_t extent;
  std::int64_t block_extent;
  std::int64_t offset;

  KOKKOS_INLINE_FUNCTION static std::uint64_t mixed(std::uint64_t word) {
    word = (word ^ (word >> 30)) * 0xBF58476D1CE4E5B9ULL;
    word = (word ^ (word >> 27)) * 0x94D049BB133111EBULL;
    return word ^ (word >> 31);
  }

  KOKKOS_FUNCTION void operator()(std::int64_t block, std::uint64_t& sum) const {
    const std::int64_t first = block * block_extent;
    const std::int64_t end = first + block_extent < extent ? first + block_extent : extent;
    std::uint64_t local = 0;
    for (std::int64_t i = first; i < end; ++i)
      local += mixed((static_cast<std::uint64_t>(offset + i) << 32) + words[i]);
    sum += local;
  }
};

/// The hash of the vector's words (words_of), counted from `offset`, so that the hashes of parts add up to the hash of
/// the whole. Runs on `space` and fences.
template <class Space, class T, class Memory>
std::uint64_t bit_hash(const Space& space, const Vector<T, Memory>& x, std::int64_t offset = 0) {
  const auto words = words_of(x);
  const auto extent = static_cast<std::int64_t>(words.extent(0));
  const std::int64_t block_extent = runs_on_host<Space> ? kElementBlock : 1;
  const std::int64_t blocks = (extent + block_extent - 1) / block_extent;
  std::uint64_t hash = 0;
  Kokkos::parallel_reduce("kozero::bit_hash",
                          Kokkos::RangePolicy<Space, Kokkos::IndexType<std::int64_t>>(space, 0, blocks),
                          BitHash{words.data(), extent, block_extent, offset}, Kokkos::Sum<std::uint64_t>(hash));
  return hash;
}

/// The sums of both values(c), by lanes as in lane_sum.
template <class Values>
KOKKOS_INLINE_FUNCTION TwoValues lane_sums(std::int64_t columns, const Values& values) {
  float first[kLanes] = {};
  float second[kLanes] = {};
  const auto add = [&](std::int64_t c, int lane) {
    const TwoValues at = values(c + lane);
    first[lane] += at.first;
    second[lane] += at.second;
  };
  std::int64_t c = 0;
  for (; c + kLanes <= columns; c += kLanes) {
    for (int lane = 0; lane < kLanes; ++lane) add(c, lane);
  }
  for (int lane = 0; c + lane < columns; ++lane) add(c, lane);
  for (int half = kLanes / 2; half > 0; half /= 2) {
    for (int lane = 0; lane < half; ++lane) {
      first[lane] += first[lane + half];
      second[lane] += second[lane + half];
    }
  }
  return {first[0], second[0]};
}

/// An argument for each element of In.
template <class In>
using FloatOf = float;

/// The sums of f(x[c]...).first and of f(x[c]...).second over c in [0, columns), each with the bits of row_sum, and on
/// a host in one pass.
template <class Team, class F, class... In>
KOKKOS_INLINE_FUNCTION TwoValues row_sums(const Team& team, std::int64_t columns, const F& f, const In*... x) {
  KOKKOS_IF_ON_HOST((static_cast<void>(team);
                     return lane_sums(columns, [=](std::int64_t c) { return f(static_cast<float>(x[c])...); });))
  KOKKOS_IF_ON_DEVICE((
      const auto first = [=](FloatOf<In>... v) { return f(v...).first; };
      const auto second = [=](FloatOf<In>... v) { return f(v...).second; };
      return TwoValues{row_sum(team, columns, first, x...), row_sum(team, columns, second, x...)};))
}

}  // namespace kozero::kernels
