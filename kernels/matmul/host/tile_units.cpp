// SPDX-FileCopyrightText: The KoZeRO authors
// SPDX-License-Identifier: Apache-2.0
// tile_units.cpp: the processor's tile units, found once, before any thread multiplies, by tile_units_x86.cpp or
// tile_units_absent.cpp.
#include <string>
#include <system_error>
#include <type_traits>

#include <kozero/core/precision.hpp>
#include "kernels/matmul/host/matmul_host.hpp"
#include "kernels/matmul/host/tile_units.hpp"
#include "kernels/matmul/matmul.hpp"

namespace kozero::kernels {

template <class T>
const TileUnits& tile_units() {
  static const TileUnits units = find_units<T>();
  return units;
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

#define KOZERO_INSTANTIATE(T)                \
  template const TileUnits& tile_units<T>(); \
  template std::string multiplier_note<T>();
KOZERO_FOR_STORED_TYPES(KOZERO_INSTANTIATE)

}  // namespace kozero::kernels
