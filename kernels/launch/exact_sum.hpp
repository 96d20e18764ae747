// SPDX-FileCopyrightText: The KoZeRO authors
// SPDX-License-Identifier: Apache-2.0
// exact_sum.hpp: the sum of squares of vectors, with the same bits for any shards, number of threads and order.
//   block sum = the squares of 64 elements, added in double in a fixed order; a vector begins with a block
//   sum       = block sums added as integers: a double m 2^e is split over 32-bit words
// Words are stored in 64 bits: 2^30 additions fit before carries must be propagated. Kulisch, "Computer
// Arithmetic and Validity" (the long accumulator); the word layout is ours.
#pragma once
#include <array>
#include <cmath>
#include <cstdint>
#include <Kokkos_Core.hpp>
#include <limits>

#include <kozero/core/views.hpp>
#include "kernels/launch/for_each.hpp"

namespace kozero::kernels {

/// A sum of doubles >= 0: the sum over i of words[i] 2^(32 i - 1074), and the counts of infinities and NaNs.
struct ExactSum {
  static constexpr int kValueWords = 66;
  static constexpr int kWords = kValueWords + 2;
  std::array<std::uint64_t, kWords> words{};

  ExactSum& operator+=(const ExactSum& other) {
    for (int i = 0; i < kWords; ++i) words[i] += other.words[i];
    return *this;
  }
  /// Propagates carries, so that each word is below 2^32.
  void normalize() {
    for (int i = 0; i + 1 < kValueWords; ++i) {
      words[i + 1] += words[i] >> 32U;
      words[i] &= 0xFFFFFFFFU;
    }
  }
  /// The sum as a double; infinity or NaN if one was added. Call after normalize().
  [[nodiscard]] double value() const {
    if (words[kValueWords + 1] > 0) return std::numeric_limits<double>::quiet_NaN();
    if (words[kValueWords] > 0) return std::numeric_limits<double>::infinity();
    double sum = 0.0;
    for (int i = 0; i < kValueWords; ++i) {
      if (words[i] > 0) sum += std::ldexp(static_cast<double>(words[i]), 32 * i - 1074);
    }
    return sum;
  }
};

/// Calls add(word, bits) for each word that a double, >= 0 or not finite, adds to.
template <class Add>
KOKKOS_INLINE_FUNCTION void add_exactly(double value, const Add& add) {
  const auto bits = Kokkos::bit_cast<std::uint64_t>(value);
  const auto exponent = static_cast<int>((bits >> 52U) & 0x7FFU);
  const std::uint64_t fraction = bits & ((std::uint64_t{1} << 52U) - 1);
  if (exponent == 0x7FF) return add(ExactSum::kValueWords + (fraction == 0 ? 0 : 1), std::uint64_t{1});
  const std::uint64_t digits = exponent == 0 ? fraction : fraction | (std::uint64_t{1} << 52U);
  const int position = exponent == 0 ? 0 : exponent - 1;
  const int word = position / 32;
  const int shift = position % 32;
  const std::uint64_t low = (digits & 0xFFFFFFFFU) << shift;
  const std::uint64_t high = (digits >> 32U) << shift;
  add(word, low & 0xFFFFFFFFU);
  add(word + 1, (low >> 32U) + (high & 0xFFFFFFFFU));
  add(word + 2, high >> 32U);
}

inline constexpr std::int64_t kSquaresBlock = 64;  ///< elements of a block; shards begin and end at block boundaries

/// The squares of one block, `extent` <= kSquaresBlock elements, by 8 lanes.
KOKKOS_INLINE_FUNCTION double squares_of_block(const float* x, std::int64_t extent) {
  double lanes[8] = {};
  if (extent == kSquaresBlock) {
    for (int i = 0; i < kSquaresBlock; i += 8) {
      for (int lane = 0; lane < 8; ++lane) {
        lanes[lane] += static_cast<double>(x[i + lane]) * static_cast<double>(x[i + lane]);
      }
    }
  } else {
    for (int i = 0; i < kSquaresBlock; i += 8) {
      for (int lane = 0; lane < 8; ++lane) {
        const double value = i + lane < extent ? static_cast<double>(x[i + lane]) : 0.0;
        lanes[lane] += value * value;
      }
    }
  }
  return ((lanes[0] + lanes[1]) + (lanes[2] + lanes[3])) + ((lanes[4] + lanes[5]) + (lanes[6] + lanes[7]));
}

/// Host: adds a run of blocks into its own row of words.
struct AddSquaresOfRun {
  const float* x;
  std::int64_t extent;
  std::int64_t run;  // elements
  std::uint64_t* rows;

  void operator()(std::int64_t index) const {
    std::uint64_t* const row = rows + index * ExactSum::kWords;
    const std::int64_t end = extent < (index + 1) * run ? extent : (index + 1) * run;
    for (std::int64_t first = index * run; first < end; first += kSquaresBlock) {
      const double sum = squares_of_block(x + first, end - first < kSquaresBlock ? end - first : kSquaresBlock);
      add_exactly(sum, [row](int word, std::uint64_t bits) { row[word] += bits; });
    }
  }
};

/// Device: each thread adds one block into one of the rows.
struct AddSquaresOfBlock {
  const float* x;
  std::int64_t extent;
  std::int64_t num_rows;
  std::uint64_t* rows;

  KOKKOS_FUNCTION void operator()(std::int64_t block) const {
    std::uint64_t* const row = rows + block % num_rows * ExactSum::kWords;
    const std::int64_t first = block * kSquaresBlock;
    const double sum = squares_of_block(x + first, extent - first < kSquaresBlock ? extent - first : kSquaresBlock);
    add_exactly(sum, [row](int word, std::uint64_t bits) { Kokkos::atomic_add(row + word, bits); });
  }
};

/// Device: thread `at` adds word at % kWords of the rows of part at / kWords.
struct AddRows {
  const std::uint64_t* rows;
  std::int64_t rows_of_part;
  std::uint64_t* sums;  // (parts, kWords)

  KOKKOS_FUNCTION void operator()(std::int64_t at) const {
    const std::int64_t first = at / ExactSum::kWords * rows_of_part;
    std::uint64_t sum = 0;
    for (std::int64_t row = first; row < first + rows_of_part; ++row)
      sum += rows[row * ExactSum::kWords + at % ExactSum::kWords];
    sums[at] = sum;
  }
};

/// The running sum on a device. Kernels run in the order of the calls; only sum() waits.
class SumOfSquares {
 public:
  SumOfSquares() : rows_("kozero::sum_of_squares", static_cast<std::size_t>(num_rows() * ExactSum::kWords)) {
    if constexpr (!runs_on_host<Device>)
      parts_ = decltype(parts_)("kozero::sum_of_squares::parts", kParts * ExactSum::kWords);
  }

  void clear() { Kokkos::deep_copy(Device(), rows_, 0U); }

  /// Adds the squares of a vector, which begins with a block.
  void add(Vector<const float> x) {
    const auto extent = static_cast<std::int64_t>(x.extent(0));
    const std::int64_t blocks = (extent + kSquaresBlock - 1) / kSquaresBlock;
    using Policy = Kokkos::RangePolicy<Device, Kokkos::IndexType<std::int64_t>>;
    if constexpr (runs_on_host<Device>) {
      const std::int64_t run = (blocks + num_rows() - 1) / num_rows() * kSquaresBlock;
      Kokkos::parallel_for("kozero::sum_of_squares", Policy(0, blocks == 0 ? 0 : num_rows()),
                           AddSquaresOfRun{x.data(), extent, run, rows_.data()});
    } else {
      Kokkos::parallel_for("kozero::sum_of_squares", Policy(0, blocks),
                           AddSquaresOfBlock{x.data(), extent, num_rows(), rows_.data()});
    }
  }

  /// The sum since clear(), normalized. Waits for the device.
  [[nodiscard]] ExactSum sum() const {
    if constexpr (runs_on_host<Device>) {
      return sum_of(rows_);
    } else {
      using Policy = Kokkos::RangePolicy<Device, Kokkos::IndexType<std::int64_t>>;
      Kokkos::parallel_for("kozero::sum_of_squares::rows", Policy(0, kParts * ExactSum::kWords),
                           AddRows{rows_.data(), num_rows() / kParts, parts_.data()});
      return sum_of(parts_);
    }
  }

 private:
  static constexpr std::int64_t kParts = 16;  // sums that are left to the host

  static constexpr std::int64_t kRowsOfDevice = 1024;
  static_assert(kRowsOfDevice % kParts == 0);

  static std::int64_t num_rows() { return runs_on_host<Device> ? Device().concurrency() : kRowsOfDevice; }

  template <class Words>
  static ExactSum sum_of(const Words& rows) {
    Device().fence("kozero::sum_of_squares");
    ExactSum all;
    for (std::size_t i = 0; i < rows.extent(0); ++i) all.words[i % ExactSum::kWords] += rows(i);
    all.normalize();
    return all;
  }

  Kokkos::View<std::uint64_t*, DeviceMemory> rows_;
  Kokkos::View<std::uint64_t*, Kokkos::SharedHostPinnedSpace> parts_;  // on a GPU
};

}  // namespace kozero::kernels
