// SPDX-FileCopyrightText: The KoZeRO authors
// SPDX-License-Identifier: Apache-2.0
// tile_units.cpp: the processor's tile units, found once, before any thread multiplies, and what their kinds of lines
// define.
#include "kernels/matmul/host/tile_units.hpp"

#include <algorithm>
#include <cstdlib>
#include <iterator>
#include <string>
#include <system_error>

#include <kozero/core/error.hpp>
#include <kozero/core/precision.hpp>
#include "kernels/matmul/matmul.hpp"

namespace kozero::kernels {

bool permits_unit(std::string_view name) {
  const char* const most = std::getenv("KOZERO_TILE_UNITS");
  if (most == nullptr) return true;
  const auto* const last = std::find(std::begin(kUnitNames), std::end(kUnitNames), most);
  if (last == std::end(kUnitNames)) {
    throw Error(Failure::deck, std::string("KOZERO_TILE_UNITS: there is no unit '") + most +
                                   "'; accepted: base, AVX2, AVX-512, AVX-512 BF16, AMX");
  }
  return std::find(std::begin(kUnitNames), last + 1, name) != last + 1;
}

template <class T>
const std::vector<TileUnit>& tile_units() {
  static const std::vector<TileUnit> units = [] {
    std::vector<TileUnit> found = std::is_same_v<T, Bfloat16> ? units_of_pairs() : std::vector<TileUnit>();
    std::ranges::copy(units_of_floats(), std::back_inserter(found));
    return found;
  }();
  return units;
}

const TileBlocks& tile_blocks(LineKind lines) {
#define KOZERO_BLOCKS(kind) kind::blocks,
  constexpr const TileBlocks& (*kOf[])() = {KOZERO_FOR_LINES(KOZERO_BLOCKS)};
#undef KOZERO_BLOCKS
  return kOf[static_cast<int>(lines)]();
}

std::string note_on_amx(const AmxFacts& facts) {
  if (facts.wrong) return "AMX multiplied wrongly";
  if (facts.refused == 0) return {};
  return "AMX refused by the kernel (" + std::system_category().message(facts.refused) + ")";
}

template <class T>
std::string multiplier_note() {
  return std::is_same_v<T, Bfloat16> ? note_on_amx(amx_facts()) : std::string();
}

#define KOZERO_INSTANTIATE(T)                            \
  template const std::vector<TileUnit>& tile_units<T>(); \
  template std::string multiplier_note<T>();
KOZERO_FOR_STORED_TYPES(KOZERO_INSTANTIATE)

}  // namespace kozero::kernels
