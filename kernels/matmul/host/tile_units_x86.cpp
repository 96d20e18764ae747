// SPDX-FileCopyrightText: The KoZeRO authors
// SPDX-License-Identifier: Apache-2.0
// tile_units_x86.cpp: the tile units of this x86-64 processor.
#include <cpuid.h>

#include <bit>
#include <cstring>
#include <vector>

#include <kozero/core/precision.hpp>
#include "kernels/matmul/host/tile_product_amx.hpp"
#include "kernels/matmul/host/tile_units.hpp"

namespace kozero::kernels {
namespace {

bool grants_amx(const AmxFacts& facts) { return facts.named && facts.refused == 0 && !facts.wrong; }

/// CPUID leaf 7, subleaf 0: EDX bit 22 is amx-bf16, bit 24 amx-tile.
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

/// Steps per pass. AMX reads one block from the first-level cache, where 32 KiB stay, and the other from the
/// second-level cache, without displacing the first. AVX-512 is slower than the second-level cache, and gains from
/// fewer loads and stores of sums.
constexpr std::int64_t kAmxSteps = 16;
constexpr std::int64_t kAvx512Steps = 32;

/// Whether the unit's products of small integers, which are exact, are those of plain loops. Otherwise it is not used.
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
  in_use.product({c, nullptr, left, right, 1});
  in_use.product({c, c, left, right, 1});
  for (std::size_t i = 0; i < kTileElements; ++i) {
    float sum = 0.0F;
    for (std::size_t k = 0; k < 2 * kStepWords; ++k) sum += 2.0F * number(i / kTileRows, k) * number(i % kTileRows, k);
    if (c[i] != sum) return false;
  }
  return true;
}

/// Whether a unit of pairs computes the bits of one chain of multiply-adds in the order of k, as the unit of floats
/// does.
bool adds_in_order(const TileUnit& unit) {
  constexpr std::size_t kPairs = kTileRows * kStepWords;
  alignas(64) std::uint16_t pairs[2][2 * kPairs];
  alignas(64) float floats[2][2 * kPairs];
  for (std::size_t row = 0; row < kTileRows; ++row) {
    for (std::size_t k = 0; k < 2 * kStepWords; ++k) {
      const std::size_t left = row * kStepWords;
      const std::size_t in_pairs[2] = {2 * (left + k / 2) + 1 - k % 2, 2 * (k / 2 * kTileRows + row) + 1 - k % 2};
      const std::size_t step = k / kStepWords * kPairs;
      const std::size_t word = k % kStepWords;
      const std::size_t in_floats[2] = {step + left + word, step + word * kTileRows + row};
      for (std::size_t side = 0; side < 2; ++side) {
        // All bits of a significand, and exponents -4 to 3.
        const auto mixed = static_cast<std::uint32_t>((64 * row + 2 * k + side) * 2654435761U >> 7U);
        const auto bits = static_cast<std::uint16_t>((mixed & 0x807FU) | (123U + (mixed >> 16U & 7U)) << 7U);
        pairs[side][in_pairs[side]] = bits;
        floats[side][in_floats[side]] = std::bit_cast<float>(static_cast<std::uint32_t>(bits) << 16U);
      }
    }
  }
  alignas(64) float c[kTileElements];
  alignas(64) float chain[kTileElements];
  TileUnitInUse(unit).product({c, nullptr, pairs[0], pairs[1], 1});
  avx512_bf16::product_of_floats({chain, nullptr, floats[0], floats[1], 2});
  return std::memcmp(c, chain, sizeof(c)) == 0;
}

void nothing() {}

constexpr TileUnit kAmx = {
    "AMX",   LineKind::avx512_bf16, true, false, amx::product_of_bfloat16, kAmxSteps, 24, 192, true, amx::begin,
    amx::end};
constexpr TileUnit kAvx512Pairs = {"AVX-512 BF16",
                                   LineKind::avx512_bf16,
                                   true,
                                   false,
                                   avx512_bf16::product_of_bfloat16,
                                   kAvx512Steps,
                                   32,
                                   128,
                                   false,
                                   nothing,
                                   nothing};

TileUnit avx512_floats(LineKind lines, void (*product)(const TileProduct& product)) {
  return {"AVX-512", lines, false, true, product, kAvx512Steps, 32, 128, false, nothing, nothing};
}

/// CPUID leaf 1, ECX bit 29. clang 14's __builtin_cpu_supports does not know it.
bool has_f16c() {
  constexpr unsigned kF16c = 1U << 29;
  unsigned a = 0;
  unsigned b = 0;
  unsigned c = 0;
  unsigned d = 0;
  return __get_cpuid(1, &a, &b, &c, &d) != 0 && (c & kF16c) != 0;
}

bool has_avx2() {
  return permits_unit("AVX2") && __builtin_cpu_supports("avx2") != 0 && __builtin_cpu_supports("fma") != 0 &&
         has_f16c();
}

bool has_avx512() {
  return has_avx2() && permits_unit("AVX-512") && __builtin_cpu_supports("avx512f") != 0 &&
         __builtin_cpu_supports("avx512bw") != 0;
}

// Every processor with AMX has the rounding of AVX-512 BF16 too, which blocks between two products need.
bool has_avx512_bf16() {
  return has_avx512() && permits_unit("AVX-512 BF16") && __builtin_cpu_supports("avx512bf16") != 0;
}

AmxFacts find_facts() {
  AmxFacts facts{.named = has_avx512_bf16() && permits_unit("AMX") && names_amx()};
  if (facts.named) facts.refused = amx::refusal();
  if (facts.named && facts.refused == 0) facts.wrong = !multiplies_rightly(kAmx);
  return facts;
}

}  // namespace

const AmxFacts& amx_facts() {
  static const AmxFacts facts = find_facts();
  return facts;
}

std::vector<TileUnit> units_of_floats() {
  std::vector<TileUnit> found;
  if (has_avx512_bf16()) {
    found.push_back(avx512_floats(LineKind::avx512_bf16, avx512_bf16::product_of_floats));
  } else if (has_avx512()) {
    found.push_back(avx512_floats(LineKind::avx512, avx512::product_of_floats));
  }
  if (has_avx2()) found.push_back(unit_of_floats("AVX2", LineKind::avx2, avx2::product_of_floats));
  if (found.empty()) found.push_back(unit_of_floats("base", LineKind::base, base::product_of_floats));
  return found;
}

std::vector<TileUnit> units_of_pairs() {
  std::vector<TileUnit> found;
  if (grants_amx(amx_facts())) found.push_back(kAmx);
  if (has_avx512_bf16() && multiplies_rightly(kAvx512Pairs)) {
    found.push_back(kAvx512Pairs);
    found.back().in_order = adds_in_order(kAvx512Pairs);
  }
  return found;
}

}  // namespace kozero::kernels
