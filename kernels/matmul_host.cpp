// SPDX-FileCopyrightText: The KoZeRO authors
// SPDX-License-Identifier: Apache-2.0
// matmul_host.cpp: who computes a product on the host: the processor's best tile unit, or oneDNN where there is none
// and where padding to blocks of 32 x 32 would more than double the work.
#include <Kokkos_Profiling_ScopedRegion.hpp>

#include <kozero/core/bfloat16.hpp>
#include <kozero/kernels/matmul.hpp>
#include <kozero/kernels/matmul_onednn.hpp>
#include <kozero/kernels/matmul_tiles.hpp>

namespace kozero::kernels {
namespace {

std::int64_t padded(std::int64_t extent) { return (extent + kTileRows - 1) / kTileRows * kTileRows; }

bool fills_tiles(const ProductShape& shape) { return padded(shape.m) * padded(shape.n) <= 2 * shape.m * shape.n; }

}  // namespace

template <class Space, class Out, class In>
void multiply(const Space& space, const ProductShape& shape, Out* c, const In* a, const In* b, const In* bias) {
  const Kokkos::Profiling::ScopedRegion region("kozero::matmul");
  const TileUnits& units = tile_units<In>();
  if (units.extent > 0 && fills_tiles(shape)) {
    multiply_by_tiles(space, units.unit[0], shape, c, a, b, bias);
  } else {
    multiply_by_onednn(shape, c, a, b, bias);
  }
}

template void multiply<Device, float, float>(const Device&, const ProductShape&, float*, const float*, const float*,
                                             const float*);
template void multiply<Device, float, Bfloat16>(const Device&, const ProductShape&, float*, const Bfloat16*,
                                                const Bfloat16*, const Bfloat16*);
template void multiply<Device, Bfloat16, Bfloat16>(const Device&, const ProductShape&, Bfloat16*, const Bfloat16*,
                                                   const Bfloat16*, const Bfloat16*);

template <class T>
const char* multiplier() {
  const TileUnits& units = tile_units<T>();
  return units.extent > 0 ? units.unit[0].name : "oneDNN";
}

template const char* multiplier<float>();
template const char* multiplier<Bfloat16>();

std::int64_t matmul_memory() { return onednn_memory() + tile_memory(); }

}  // namespace kozero::kernels
