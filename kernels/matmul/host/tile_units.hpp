// SPDX-FileCopyrightText: The KoZeRO authors
// SPDX-License-Identifier: Apache-2.0
// tile_units.hpp: the tile units that this processor has, and whether its AMX can be used. bf16 products use AMX if the
// system's kernel permits it, else AVX-512 BF16 if the processor has it.
#pragma once
#include <string>

#include "kernels/matmul/host/tile_product.hpp"

namespace kozero::kernels {

/// The state of AMX on this processor.
struct AmxFacts {
  bool named = false;  ///< CPUID reports AMX and AVX-512 BF16
  int refused = 0;     ///< the kernel's error number for AMX's tiles; 0: granted
  bool wrong = false;  ///< products of small integers were not exact
};

const AmxFacts& amx_facts();

/// The units that multiply elements of type T, the fastest first.
template <class T>
TileUnits find_units();

/// multiplier_note() of matmul.hpp for bf16: why AMX is there and not used, else "".
std::string note_on_amx(const AmxFacts& facts);

}  // namespace kozero::kernels
