// SPDX-FileCopyrightText: The KoZeRO authors
// SPDX-License-Identifier: Apache-2.0
// tile_units_base.cpp: the tile unit of architectures other than x86: the lines of the base.
#include "kernels/matmul/host/tile_units.hpp"

namespace kozero::kernels {

const AmxFacts& amx_facts() {
  static const AmxFacts facts;
  return facts;
}

std::vector<TileUnit> units_of_floats() { return {unit_of_floats("base", LineKind::base, base::product_of_floats)}; }

std::vector<TileUnit> units_of_pairs() { return {}; }

}  // namespace kozero::kernels
