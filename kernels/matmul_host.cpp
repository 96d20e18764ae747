// SPDX-FileCopyrightText: The KoZeRO authors
// SPDX-License-Identifier: Apache-2.0
// matmul_host.cpp: who computes a product on the host: the processor's best tile unit, or oneDNN where there is none
// and where padding to blocks of 32 x 32 would more than double the work. Of fp16 oneDNN is given copies in float, which
// cost more than that padding.
#include <Kokkos_Profiling_ScopedRegion.hpp>

#include <kozero/core/precision.hpp>
#include <kozero/kernels/matmul.hpp>
#include <kozero/kernels/matmul_onednn.hpp>
#include <kozero/kernels/matmul_tiles.hpp>

namespace kozero::kernels {
namespace {

Products& chosen() {
  static Products products = Products::fastest;
  return products;
}

std::int64_t padded(std::int64_t extent) { return (extent + kTileRows - 1) / kTileRows * kTileRows; }

bool fills_tiles(const ProductShape& shape) { return padded(shape.m) * padded(shape.n) <= 2 * shape.m * shape.n; }

}  // namespace

template <class T>
const TileUnit* tile_unit_in_use() {
  const TileUnits& units = tile_units<T>();
  return chosen() != Products::library && units.extent > 0 ? &units.unit[0] : nullptr;
}

template <class Space, class Out, class In>
void multiply(const Space& space, const ProductShape& shape, Out* c, const In* a, const In* b,
              const Epilogue<Out, In>& epilogue) {
  const Kokkos::Profiling::ScopedRegion region("kozero::matmul");
  const TileUnit* const unit = tile_unit_in_use<In>();
  if (unit != nullptr && (std::is_same_v<In, Float16> || fills_tiles(shape))) {
    multiply_by_tiles(space, *unit, shape, c, a, b, epilogue);
  } else {
    multiply_by_onednn(space, shape, c, a, b, epilogue);
  }
  apply_gelu(space, shape, c,
             epilogue);  // in the blocks' own storing it was slower: it reads and writes lines far apart
}

template void multiply<Device, float, float>(const Device&, const ProductShape&, float*, const float*, const float*,
                                             const Epilogue<float, float>&);
#define KOZERO_INSTANTIATE(T)                                                                              \
  template void multiply<Device, float, T>(const Device&, const ProductShape&, float*, const T*, const T*, \
                                           const Epilogue<float, T>&);                                     \
  template void multiply<Device, T, T>(const Device&, const ProductShape&, T*, const T*, const T*,         \
                                       const Epilogue<T, T>&);
KOZERO_FOR_16_BIT_TYPES(KOZERO_INSTANTIATE)
#undef KOZERO_INSTANTIATE

void choose_products(Products products) { chosen() = products; }

template <class T>
const char* multiplier() {
  const TileUnit* const unit = tile_unit_in_use<T>();
  return unit == nullptr ? "oneDNN" : unit->name;
}

template <class Space, class T>
double product_probe(const Space& space) {
  constexpr std::int64_t kSteps = 6;  // 12 KiB of each side
  constexpr std::int64_t kRepeats = 2000;
  const TileUnit* const unit = tile_unit_in_use<T>();
  if (unit == nullptr) return 0.0;
  const std::int64_t workers = space.concurrency();
  Kokkos::parallel_for("kozero::product_probe", Kokkos::RangePolicy<Space>(space, 0, workers), [=](const int) {
    alignas(64) std::byte left[kSteps * kStepBytes] = {};
    alignas(64) std::byte right[kSteps * kStepBytes] = {};
    alignas(64) float c[kTileElements];
    const TileUnitInUse in_use(*unit);
    for (std::int64_t i = 0; i < kRepeats; ++i) in_use.product(c, left, right, kSteps, i > 0);
  });
  return static_cast<double>(2 * kTileElements * kSteps * kStepExtent<T> * kRepeats * workers);
}

#define KOZERO_INSTANTIATE(T)                              \
  template const TileUnit* tile_unit_in_use<T>();          \
  template double product_probe<Device, T>(const Device&); \
  template const char* multiplier<T>();
KOZERO_FOR_STORED_TYPES(KOZERO_INSTANTIATE)

std::int64_t product_workspace() { return 0; }

}  // namespace kozero::kernels
