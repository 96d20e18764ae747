// SPDX-FileCopyrightText: The KoZeRO authors
// SPDX-License-Identifier: Apache-2.0
// reduce.hpp: one number from a whole vector: its sum, its sum of squares, its first value that is not finite.
// The sums are in double, by blocks of kSumBlock elements added in block order, so the bits on a host depend on the
// extent and the values alone, not on the threads; on a GPU the order is fixed by the device. What returns a host
// value fences; what puts it into one of Readings does not.
#pragma once
#include <algorithm>
#include <array>
#include <cmath>
#include <utility>

#include <kozero/core/views.hpp>
#include <kozero/kernels/elements.hpp>

namespace kozero::kernels {

inline constexpr std::int64_t kSumBlock = 4096;  ///< elements of a block

/// What a sum adds for each element.
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

/// Device: each thread adds packs (packs.hpp) at a stride that the extent alone decides, then of what is left elements.
template <class Term, class T>
struct StridedSum {
  static constexpr int kCount = kPackOf<T>;
  const T* x;
  std::int64_t extent;
  std::int64_t stride;

  KOKKOS_FUNCTION void operator()(std::int64_t first, double& sum) const {
    const std::int64_t packs = on_borders(x) ? extent / kCount : 0;
    KOZERO_UNROLLED_BY(4)
    for (std::int64_t pack = first; pack < packs; pack += stride) {
      const Pack<kCount> values = load_pack<kCount>(x + pack * kCount);
      for (int k = 0; k < kCount; ++k) sum += Term()(values.x[k]);
    }
    for (std::int64_t i = packs * kCount + first; i < extent; i += stride) sum += Term()(static_cast<float>(x[i]));
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

/// `sum` is a double, which costs a fence, or a view of one.
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

/// *sum = that, one of Readings.
template <class Space>
void put_sum_in_blocks(const Space& space, Vector<const float> x, double* sum) {
  put_sum_of_terms<Itself>(space, "kozero::sum_in_blocks", x, sum);
}

/// The sum of the elements' squares.
template <class Space, class T>
double sum_of_squares(const Space& space, Vector<T> x) {
  return sum_terms<Square>(space, "kozero::sum_of_squares", Vector<const T>(x));
}

/// *sum = that, one of Readings.
template <class Space, class T>
void put_sum_of_squares(const Space& space, Vector<T> x, double* sum) {
  put_sum_of_terms<Square>(space, "kozero::sum_of_squares", Vector<const T>(x), sum);
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

}  // namespace kozero::kernels
