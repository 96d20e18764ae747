// SPDX-FileCopyrightText: The KoZeRO authors
// SPDX-License-Identifier: Apache-2.0
// tile_units.cpp: which tile units the processor has. It is asked once, before any thread multiplies.
#include <kozero/core/precision.hpp>
#include <kozero/kernels/tile_packing.hpp>
#include <kozero/kernels/tile_product.hpp>
#include <kozero/kernels/tile_rows.hpp>

#if defined(__x86_64__)
#include <cpuid.h>

#include <kozero/kernels/tile_product_amx.hpp>
#include <kozero/kernels/tile_product_avx512.hpp>
#endif

namespace kozero::kernels {
namespace {

#if defined(__x86_64__)

/// CPUID leaf 7, subleaf 0: EDX bit 22 says amx-bf16, bit 24 amx-tile.
bool has_amx() {
  constexpr unsigned kBfloat16 = 1U << 22;
  constexpr unsigned kTiles = 1U << 24;
  unsigned a = 0;
  unsigned b = 0;
  unsigned c = 0;
  unsigned d = 0;
  if (__get_cpuid_count(7, 0, &a, &b, &c, &d) == 0) return false;
  return (d & kBfloat16) != 0 && (d & kTiles) != 0 && amx::permitted();
}

/// AMX reads one block from the first-level cache, where 32 KiB stay, and the other from the second-level one, without
/// displacing the first. AVX-512 is slower than the second-level cache, and gains where sums are loaded and stored less
/// often.
constexpr std::int64_t kAmxSteps = 16;
constexpr std::int64_t kAvx512Steps = 32;

void nothing() {}

/// Whether the unit multiplies small whole numbers, whose sums are exact, as plain loops do. Else it is not used.
bool multiplies_rightly(const TileUnit& unit) {
  constexpr std::size_t kPairs = kTileRows * kStepWords;
  alignas(64) std::uint16_t left[2 * kPairs];
  alignas(64) std::uint16_t right[2 * kPairs];
  alignas(64) float c[kTileElements];
  const auto number = [](std::size_t row, std::size_t k) { return static_cast<float>((3 * row + 5 * k) % 7); };
  for (std::size_t row = 0; row < kTileRows; ++row) {
    for (std::size_t k = 0; k < 2 * kStepWords; ++k) {
      const std::uint16_t bits = Bfloat16(number(row, k)).bits();
      left[row * 2 * kStepWords + k] = bits;
      right[(k / 2 * kTileRows + row) * 2 + k % 2] = bits;
    }
  }
  const TileUnitInUse in_use(unit);
  in_use.product(c, left, right, 1, false);
  in_use.product(c, left, right, 1, true);
  for (std::size_t i = 0; i < kTileElements; ++i) {
    float sum = 0.0F;
    for (std::size_t k = 0; k < 2 * kStepWords; ++k) sum += 2.0F * number(i / kTileRows, k) * number(i % kTileRows, k);
    if (c[i] != sum) return false;
  }
  return true;
}

void add_if_right(TileUnits& found, const TileUnit& unit) {
  if (multiplies_rightly(unit)) found.unit[found.extent++] = unit;
}

template <class T>
TileUnits find_units();

template <>
TileUnits find_units<float>() {
  TileUnits found{};
  if (__builtin_cpu_supports("avx512f") != 0 && __builtin_cpu_supports("avx512bw") != 0) {
    found.unit[found.extent++] = {"AVX-512", avx512::product_of_floats, kAvx512Steps, 32, 128, false, nothing, nothing};
  }
  return found;
}

template <>
TileUnits find_units<Bfloat16>() {
  TileUnits found{};
  // Every processor with AMX has the rounding of AVX-512 BF16 too, which blocks between two products need.
  if (find_units<float>().extent == 0 || __builtin_cpu_supports("avx512bf16") == 0) return found;
  if (has_amx()) add_if_right(found, {"AMX", amx::product_of_bfloat16, kAmxSteps, 24, 192, true, amx::begin, amx::end});
  add_if_right(found, {"AVX-512 BF16", avx512::product_of_bfloat16, kAvx512Steps, 32, 128, false, nothing, nothing});
  return found;
}

template <>
TileUnits find_units<Float16>() {
  return find_units<float>();
}

#else

template <class T>
TileUnits find_units() {
  return {};
}

#endif

}  // namespace

#if !defined(__x86_64__)
// Without a unit nobody packs.
void pack_words(void*, TileSide, const TileSource<float>&, std::int64_t, std::int64_t, std::int64_t) {}
void pack_pairs(void*, TileSide, const TileSource<std::uint16_t>&, std::int64_t, std::int64_t, std::int64_t) {}
void pack_halves(void*, TileSide, const TileSource<Float16Bits>&, std::int64_t, std::int64_t, std::int64_t) {}
void finish_stores() {}
template <class Out, class In>
void store_tile_rows(const TileRows<Out, In>&, std::int64_t, std::int64_t) {}
template void store_tile_rows<float, float>(const TileRows<float, float>&, std::int64_t, std::int64_t);
#define KOZERO_INSTANTIATE(In)                                                                               \
  template void store_tile_rows<float, StorageOf<In>>(const TileRows<float, StorageOf<In>>&, std::int64_t,   \
                                                      std::int64_t);                                         \
  template void store_tile_rows<StorageOf<In>, StorageOf<In>>(const TileRows<StorageOf<In>, StorageOf<In>>&, \
                                                              std::int64_t, std::int64_t);
KOZERO_FOR_16_BIT_TYPES(KOZERO_INSTANTIATE)
#undef KOZERO_INSTANTIATE
#endif

template <class T>
const TileUnits& tile_units() {
  static const TileUnits units = find_units<T>();
  return units;
}

#define KOZERO_INSTANTIATE(T) template const TileUnits& tile_units<T>();
KOZERO_FOR_STORED_TYPES(KOZERO_INSTANTIATE)

}  // namespace kozero::kernels
