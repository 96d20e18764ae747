// SPDX-FileCopyrightText: The KoZeRO authors
// SPDX-License-Identifier: Apache-2.0
// tile_units.hpp: the tile units that this processor has. Floats use the widest vector instructions, and so does fp16.
// bf16 uses AMX if the system's kernel permits it, else AVX-512 BF16, else the unit of floats.
#pragma once
#include <string>
#include <string_view>
#include <type_traits>
#include <vector>

#include "kernels/matmul/host/tile_blocks.hpp"
#include "kernels/matmul/host/tile_product.hpp"

namespace kozero::kernels {

/// The processor's units for elements of T, the fastest first: at least one. KOZERO_TILE_UNITS=NAME hides the units
/// that are above NAME in kUnitNames, to test and time what processors without them do. Throws Error(deck) if the name
/// is unknown.
template <class T>
const std::vector<TileUnit>& tile_units();

/// The unit that attention uses for T: the fastest. With run.products = "portable" that of floats, since attention
/// rounds probabilities for units of pairs.
template <class T>
const TileUnit& attention_unit();

/// The least first.
inline constexpr std::string_view kUnitNames[] = {"base", "AVX2", "AVX-512", "AVX-512 BF16", "AMX"};

/// Whether KOZERO_TILE_UNITS permits a unit.
bool permits_unit(std::string_view name);

/// Calls call(Word()) with the words of a unit for T: Bfloat16 for pairs, else float.
template <class T, class Call>
decltype(auto) with_word(const TileUnit& unit, const Call& call) {
  if constexpr (std::is_same_v<T, Bfloat16>) {
    if (unit.pairs) return call(T());
  }
  return call(float());
}

/// The processor's units of floats, and of pairs of bf16, the fastest first (tile_units_x86.cpp, tile_units_base.cpp).
std::vector<TileUnit> units_of_floats();
std::vector<TileUnit> units_of_pairs();

/// The unit of floats in lines of that kind, with its `product`. Half a block of right, 12 KiB, stays in the
/// first-level cache, and the sums in half of a second-level cache of 512 KiB.
inline TileUnit unit_of_floats(const char* name, LineKind lines, void (*product)(const TileProduct& product)) {
  return {name, lines, false, true, product, 12, 16, 64, false, [] {}, [] {}};
}

/// The state of AMX on this processor.
struct AmxFacts {
  bool named = false;  ///< CPUID reports AMX and AVX-512 BF16
  int refused = 0;     ///< the kernel's error number for AMX's tiles; 0: granted
  bool wrong = false;  ///< products of small integers were not exact
};

const AmxFacts& amx_facts();

/// multiplier_note() of matmul.hpp for bf16: why AMX is there and not used, else "".
std::string note_on_amx(const AmxFacts& facts);

}  // namespace kozero::kernels

// For each kind of lines what tile_product.cpp and tile_blocks.cpp define.
#define KOZERO_DECLARE(kind)                            \
  namespace kozero::kernels::kind {                     \
  void product_of_floats(const TileProduct& product);   \
  void product_of_bfloat16(const TileProduct& product); \
  const TileBlocks& blocks();                           \
  }
KOZERO_FOR_LINES(KOZERO_DECLARE)
#undef KOZERO_DECLARE
