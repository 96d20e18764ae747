// SPDX-FileCopyrightText: The KoZeRO authors
// SPDX-License-Identifier: Apache-2.0
// tile_units.cpp: which tile units the processor has. It is asked once, before any thread multiplies.
#include <algorithm>
#include <chrono>
#include <cmath>
#include <string_view>
#include <system_error>

#if defined(__x86_64__)
#include <cpuid.h>

#include "kernels/matmul/host/tile_product_amx.hpp"
#include "kernels/matmul/host/tile_product.hpp"
#endif

#include <kozero/core/precision.hpp>
#include "kernels/matmul/host/matmul_host.hpp"
#include "kernels/matmul/host/tile_packing.hpp"
#include "kernels/matmul/host/tile_rows.hpp"
#include "kernels/matmul/host/tile_units.hpp"
#include "kernels/matmul/matmul.hpp"

namespace kozero::kernels {
namespace {

bool grants_amx(const Bfloat16Facts& facts) { return facts.amx && facts.amx_refused == 0 && !facts.amx_wrong; }

#if defined(__x86_64__)

/// CPUID leaf 7, subleaf 0: EDX bit 22 says amx-bf16, bit 24 amx-tile.
bool names_amx() {
  constexpr unsigned kBfloat16 = 1U << 22;
  constexpr unsigned kTiles = 1U << 24;
  unsigned a = 0;
  unsigned b = 0;
  unsigned c = 0;
  unsigned d = 0;
  if (__get_cpuid_count(7, 0, &a, &b, &c, &d) == 0) return false;
  return (d & kBfloat16) != 0 && (d & kTiles) != 0;
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

constexpr TileUnit kAmx = {"AMX", amx::product_of_bfloat16, kAmxSteps, 24, 192, true, amx::begin, amx::end};
constexpr TileUnit kAvx512Pairs = {"AVX-512 BF16", avx512::product_of_bfloat16, kAvx512Steps, 32, 128, false, nothing,
                                   nothing};
constexpr TileUnit kAvx512Floats = {"AVX-512", avx512::product_of_floats, kAvx512Steps, 32, 128, false, nothing,
                                    nothing};

/// The shortest of several times, in seconds, of products of blocks that the first-level cache holds.
double shortest_time(const TileUnit& unit, double shortest) {
  constexpr std::int64_t kSteps = 6;
  constexpr int kProducts = 32;
  alignas(64) float left[kSteps * kStepBytes / 4];
  alignas(64) float right[kSteps * kStepBytes / 4];
  alignas(64) float c[kTileElements];
  std::fill(std::begin(left), std::end(left), 1.5F);
  std::fill(std::begin(right), std::end(right), -1.25F);
  const auto begun = std::chrono::steady_clock::now();
  for (int i = 0; i < kProducts; ++i) unit.product({c, i == 0 ? nullptr : c, left, right, kSteps});
  return std::min(shortest, std::chrono::duration<double>(std::chrono::steady_clock::now() - begun).count());
}

/// The rates of both, measured in turns.
void measure(Bfloat16Facts& facts) {
  constexpr int kTurns = 9;
  constexpr double kWords = 2.0 * kTileElements * kStepWords * 6 * 32;
  double pairs = 1.0;
  double floats = 1.0;
  for (int turn = 0; turn < kTurns; ++turn) {
    pairs = shortest_time(kAvx512Pairs, pairs);
    floats = shortest_time(kAvx512Floats, floats);
  }
  facts.pairs = 2.0 * kWords / pairs / 1e9;
  facts.floats = kWords / floats / 1e9;
}

bool has_avx512() { return __builtin_cpu_supports("avx512f") != 0 && __builtin_cpu_supports("avx512bw") != 0; }

Bfloat16Facts find_facts() {
  Bfloat16Facts facts;
  // Every processor with AMX has the rounding of AVX-512 BF16 too, which blocks between two products need.
  facts.avx512_bf16 = has_avx512() && __builtin_cpu_supports("avx512bf16") != 0;
  facts.amx = facts.avx512_bf16 && names_amx();
  if (facts.amx) facts.amx_refused = amx::refusal();
  if (facts.amx && facts.amx_refused == 0) facts.amx_wrong = !multiplies_rightly(kAmx);
  const bool library_is_fast = std::string_view(library_name()) != "loops";
  if (facts.avx512_bf16 && !grants_amx(facts) && library_is_fast) measure(facts);
  return facts;
}

const Bfloat16Facts& bfloat16_facts() {
  static const Bfloat16Facts facts = find_facts();
  return facts;
}

template <class T>
TileUnits find_units();

template <>
TileUnits find_units<float>() {
  TileUnits found{};
  if (has_avx512()) found.unit[found.extent++] = kAvx512Floats;
  return found;
}

template <>
TileUnits find_units<Bfloat16>() {
  TileUnits found{};
  const Bfloat16Facts& facts = bfloat16_facts();
  if (!uses_bfloat16(facts)) return found;
  if (grants_amx(facts)) found.unit[found.extent++] = kAmx;
  add_if_right(found, kAvx512Pairs);
  return found;
}

template <>
TileUnits find_units<Float16>() {
  return find_units<float>();
}

#else

const Bfloat16Facts& bfloat16_facts() {
  static const Bfloat16Facts facts;
  return facts;
}

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

bool uses_bfloat16(const Bfloat16Facts& facts) {
  constexpr double kFaster = 1.4;
  if (!facts.avx512_bf16) return false;
  return grants_amx(facts) || facts.floats < kFaster * facts.pairs || facts.floats == 0.0;
}

std::string note_on_bfloat16(const Bfloat16Facts& facts) {
  const bool without_amx = facts.amx && !grants_amx(facts);
  if (!facts.avx512_bf16 || (!without_amx && uses_bfloat16(facts))) return {};
  std::string note;
  if (facts.amx_wrong) note = "AMX multiplied wrongly";
  if (facts.amx_refused != 0) {
    note = "AMX refused by the kernel (" + std::system_category().message(facts.amx_refused) + ")";
  }
  if (facts.floats == 0.0) return note;
  return note + (note.empty() ? "" : ", ") + "AVX-512 BF16 " + std::to_string(std::lround(facts.pairs)) +
         " GFLOP/s a thread, AVX-512 of floats " + std::to_string(std::lround(facts.floats));
}

template <class T>
std::string multiplier_note() {
  return std::is_same_v<T, Bfloat16> ? note_on_bfloat16(bfloat16_facts()) : std::string();
}

#define KOZERO_INSTANTIATE(T)                \
  template const TileUnits& tile_units<T>(); \
  template std::string multiplier_note<T>();
KOZERO_FOR_STORED_TYPES(KOZERO_INSTANTIATE)

}  // namespace kozero::kernels
