// SPDX-FileCopyrightText: The KoZeRO authors
// SPDX-License-Identifier: Apache-2.0
// tile_product.hpp: the innermost product of the host, of two packed blocks of 32 rows, and the units that compute it.
//   c (32, 32) = sum_k left(:, k) right(:, k)^T        or c += that        c float, row-major, aligned to a cache line
// A block has 32 rows of an operand for some steps of k. A step is one cache line of a row: 16 words of 32 bits, which
// are 16 floats or 16 pairs of bf16; fp16, which no unit multiplies, is packed as floats. In words (tile_packing.hpp
// makes both orders):
//   left   [step][32 rows][16 words]        right   [step][16 words][32 rows]
// AMX takes both as its tiles; AVX-512 broadcasts a word of left and multiplies 32 rows of right with it. Terms are
// added in the order of k, so bits depend on the unit alone. Products of bf16 take denormal numbers for zero. The
// header includes no Kokkos, since sources compiled for AVX-512 include it.
#pragma once
#include <cstdint>
#include <type_traits>

namespace kozero {
class Bfloat16;
class Float16;
}  // namespace kozero

namespace kozero::kernels {

/// The bits of a Float16, for code without Kokkos that is compiled for certain processors.
enum class Float16Bits : std::uint16_t {};

/// The type of elements of T in memory, for such code.
template <class T>
using StorageOf = std::conditional_t<std::is_same_v<T, Bfloat16>, std::uint16_t,
                                     std::conditional_t<std::is_same_v<T, Float16>, Float16Bits, T>>;

/// The type of elements of T in a packed block.
template <class T>
using Packed = std::conditional_t<std::is_same_v<StorageOf<T>, Float16Bits>, float, T>;

inline constexpr std::int64_t kTileRows = 32;
inline constexpr std::int64_t kTileElements = kTileRows * kTileRows;  ///< of c
inline constexpr std::int64_t kStepWords = 16;
inline constexpr std::int64_t kStepBytes = kTileRows * kStepWords * 4;  ///< of a block, per step

/// Elements of k in a step.
template <class T>
inline constexpr std::int64_t kStepExtent = kStepWords * 4 / static_cast<std::int64_t>(sizeof(Packed<T>));

/// Elements of a block, per step.
template <class T>
inline constexpr std::int64_t kStepElements = kTileRows*(kStepExtent<T>);

/// Steps for k elements.
template <class T>
constexpr std::int64_t steps_of(std::int64_t k) {
  return (k + kStepExtent<T> - 1) / kStepExtent<T>;
}

/// A side of a product.
enum class TileSide { left, right };

/// Work for the vector units and the memory while a product's matrix instructions run: part(of, i), once for each i in
/// [0, steps), in this order; none if `part` is null.
struct SideWork {
  void (*part)(const void* of, std::int64_t step) = nullptr;
  const void* of = nullptr;
};

/// The side of a product that is read once, and so need not stay in the first-level cache.
enum class ReadOnce { neither, left, right };

/// c = left right^T, or before + left right^T. c may be `before`.
struct TileProduct {
  float* c;
  const float* before;  ///< null: nothing
  const void* left;
  const void* right;
  std::int64_t steps;
  ReadOnce once = ReadOnce::neither;
  SideWork beside{};
};

/// A unit that multiplies blocks of one type.
struct TileUnit {
  const char* name;
  void (*product)(const TileProduct& product);
  std::int64_t pass_steps;    ///< most steps of k in a product: one block of that length stays in the first-level cache
  std::int64_t group_blocks;  ///< most shared blocks that are multiplied with a chunk
  std::int64_t sum_blocks;    ///< most 32 x 32 sums per worker, which fit into the second-level cache
  bool overlaps;              ///< whether side work runs during a product; else before
  void (*begin)();            ///< each thread calls it before its first product ...
  void (*end)();              ///< ... and this one after its last
};

/// The processor's `extent` units for blocks of packed T, the fastest first; none without tile units.
struct TileUnits {
  TileUnit unit[2];
  int extent;
};
template <class T>
const TileUnits& tile_units();

/// The unit that matmul and attention use for T: the fastest; null if there is none or the library was chosen.
template <class T>
const TileUnit* tile_unit_in_use();

/// "AVX-512 BF16"; "loops" for null.
const char* name_of(const TileUnit* unit);

/// A unit switched on for the calling thread.
class TileUnitInUse {
 public:
  explicit TileUnitInUse(const TileUnit& unit) : unit_(unit) { unit_.begin(); }
  ~TileUnitInUse() { unit_.end(); }
  TileUnitInUse(const TileUnitInUse&) = delete;
  TileUnitInUse& operator=(const TileUnitInUse&) = delete;

  /// c = left right^T, or c += it.
  template <class T>
  void product(float* c, const T* left, const T* right, std::int64_t steps, bool accumulate) const {
    unit_.product({c, accumulate ? c : nullptr, left, right, steps});
  }
  void product(const TileProduct& product) const { unit_.product(product); }

 private:
  const TileUnit& unit_;
};

}  // namespace kozero::kernels

namespace kozero::kernels::avx512 {

/// TileUnit::product in AVX-512, of floats and of pairs of bf16.
void product_of_floats(const TileProduct& product);
void product_of_bfloat16(const TileProduct& product);

}  // namespace kozero::kernels::avx512
