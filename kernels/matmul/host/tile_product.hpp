// SPDX-FileCopyrightText: The KoZeRO authors
// SPDX-License-Identifier: Apache-2.0
// tile_product.hpp: the innermost product of the host, of two packed blocks of 32 rows, and the units that compute it.
//   c (32, 32) = sum_k left(:, k) right(:, k)^T        or c += that        c float, row-major, aligned to a cache line
// A block has 32 rows of an operand for some steps of k. A step is one cache line of a row: 16 words of 32 bits, which
// are 16 floats or, for units that multiply them, 16 pairs of bf16, the earlier k in the upper half. Other units get
// bf16 as floats, and all units get fp16 as floats. In words (tile_packing.hpp makes both orders):
//   left   [step][32 rows][16 words]        right   [step][16 words][32 rows]
// AMX takes both as its tiles; the other units broadcast a word of left and multiply rows of right with it. An element
// of a product of floats is one chain of fused multiply-adds in the order of k, on every unit, so all have the same
// bits (but for the base of x86, which rounds each product before its sum). AVX-512 BF16 has that order too: VDPBF16PS
// adds the upper product of a pair, then the lower one, each fused and rounded. AMX does not: TDPBF16PS adds the upper
// and the lower products of a step to a chain each, from zero, and the sum of the chains to c. Both take denormal
// numbers for zero. (Intel 64 and IA-32 Architectures Software Developer's Manual, volume 2.) The header includes no
// Kokkos, since sources compiled for certain processors include it.
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

inline constexpr std::int64_t kTileRows = 32;
inline constexpr std::int64_t kTileElements = kTileRows * kTileRows;  ///< of c
inline constexpr std::int64_t kStepWords = 16;
inline constexpr std::int64_t kStepBytes = kTileRows * kStepWords * 4;  ///< of a block, per step

/// Elements of k in a step of words: float, or Bfloat16 for pairs.
template <class Word>
inline constexpr std::int64_t kStepExtent = kStepWords * 4 / static_cast<std::int64_t>(sizeof(StorageOf<Word>));

/// Elements of a block, per step.
template <class Word>
inline constexpr std::int64_t kStepElements = kTileRows*(kStepExtent<Word>);

/// Steps for k elements.
template <class Word>
constexpr std::int64_t steps_of(std::int64_t k) {
  return (k + kStepExtent<Word> - 1) / kStepExtent<Word>;
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

/// c = left right^T, or before + left right^T. c may be `before`. Rows and columns of c that do not exist may get any
/// numbers.
struct TileProduct {
  float* c;
  const float* before;  ///< null: nothing
  const void* left;
  const void* right;
  std::int64_t steps;
  ReadOnce once = ReadOnce::neither;
  SideWork beside{};
  std::int64_t rows = kTileRows, columns = kTileRows;  ///< of c that exist
  std::int64_t step_bytes = kStepBytes;                ///< from a step of left or right to the next
  /// A packed block that a later product reads, prefetched into the second-level cache by units in lines; or null.
  const void* later = nullptr;
};

/// X(kind) for each kind of vector instructions for which lines.hpp is compiled.
#if defined(__x86_64__)
#define KOZERO_FOR_LINES(X) X(base) X(avx2) X(avx512) X(avx512_bf16)
#else
#define KOZERO_FOR_LINES(X) X(base)
#endif
#define KOZERO_LINE_KIND(kind) kind,
enum class LineKind { KOZERO_FOR_LINES(KOZERO_LINE_KIND) };
#undef KOZERO_LINE_KIND

/// A unit that multiplies blocks of one kind of words.
struct TileUnit {
  const char* name;
  LineKind lines;  ///< packs and stores its blocks
  bool pairs;      ///< whether words are pairs of bf16
  bool in_order;   ///< whether an element is one chain of multiply-adds in the order of k
  void (*product)(const TileProduct& product);
  std::int64_t pass_steps;    ///< most steps of k in a product: one block of that length stays in the first-level cache
  std::int64_t group_blocks;  ///< most shared blocks that are multiplied with a chunk
  std::int64_t sum_blocks;    ///< most 32 x 32 sums per worker, which fit into the second-level cache
  bool overlaps;              ///< whether side work runs during a product; else before
  void (*begin)();            ///< each thread calls it before its first product ...
  void (*end)();              ///< ... and this one after its last
};

/// A unit switched on for the calling thread.
class TileUnitInUse {
 public:
  explicit TileUnitInUse(const TileUnit& unit) : unit_(unit) { unit_.begin(); }
  ~TileUnitInUse() { unit_.end(); }
  TileUnitInUse(const TileUnitInUse&) = delete;
  TileUnitInUse& operator=(const TileUnitInUse&) = delete;

  void product(const TileProduct& product) const { unit_.product(product); }

 private:
  const TileUnit& unit_;
};

}  // namespace kozero::kernels
