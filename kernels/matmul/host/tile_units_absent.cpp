// SPDX-FileCopyrightText: The KoZeRO authors
// SPDX-License-Identifier: Apache-2.0
// tile_units_absent.cpp: tile_units.hpp, tile_packing.hpp and tile_rows.hpp for architectures without tile units.
// Nothing calls the packing and the stores, because find_units() finds no unit.
#include <kozero/core/precision.hpp>
#include "kernels/matmul/host/tile_packing.hpp"
#include "kernels/matmul/host/tile_rows.hpp"
#include "kernels/matmul/host/tile_units.hpp"

namespace kozero::kernels {

const AmxFacts& amx_facts() {
  static const AmxFacts facts;
  return facts;
}

template <class T>
TileUnits find_units() {
  return {};
}
#define KOZERO_INSTANTIATE(T) template TileUnits find_units<T>();
KOZERO_FOR_STORED_TYPES(KOZERO_INSTANTIATE)
#undef KOZERO_INSTANTIATE

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

}  // namespace kozero::kernels
