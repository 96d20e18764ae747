// SPDX-FileCopyrightText: The KoZeRO authors
// SPDX-License-Identifier: Apache-2.0
// matmul_host.cpp: the choice of the algorithm for a product on the host. The default: the processor's best tile unit,
// or the loops if there is none or if padding to blocks of 32 x 32 would more than double the work. The loops multiply
// copies of fp16 in float, which cost more than that padding. A table may name another unit or the loops
// (product_tuning.hpp). The bits of all of these do not depend on the number of threads. Products of at most kFewRows
// rows are bound by memory bandwidth and computed by matmul_few_rows.cpp. With run.products = "library" the library
// computes all products.
#include <Kokkos_Profiling_ScopedRegion.hpp>

#include <kozero/core/precision.hpp>
#include "kernels/matmul/host/matmul_host.hpp"
#include "kernels/matmul/matmul.hpp"
#include "kernels/matmul/product_tuning.hpp"

namespace kozero::kernels {
namespace {

Products& chosen() {
  static Products products = Products::fastest;
  return products;
}

std::int64_t padded(std::int64_t extent) { return (extent + kTileRows - 1) / kTileRows * kTileRows; }

bool fills_tiles(const ProductShape& shape) { return padded(shape.m) * padded(shape.n) <= 2 * shape.m * shape.n; }

bool uses_library() { return chosen() == Products::library; }

constexpr const char* kLoops = "loops";

template <class In>
bool goes_to_tiles(const ProductShape& shape) {
  return tile_unit_in_use<In>() != nullptr && (std::is_same_v<In, Float16> || fills_tiles(shape));
}

/// The algorithms for this shape, the default first. Null: the loops.
template <class In>
std::vector<const TileUnit*> algorithms_of(const ProductShape& shape) {
  std::vector<const TileUnit*> algorithms;
  const TileUnits& units = tile_units<In>();
  for (int i = 0; i < units.extent; ++i) algorithms.push_back(&units.unit[i]);
  algorithms.insert(goes_to_tiles<In>(shape) ? algorithms.end() : algorithms.begin(), nullptr);
  return algorithms;
}

/// The product by a unit or, if null, by the loops.
template <class Out, class In>
void multiply_by(const TileUnit* unit, const Device& space, const ProductShape& shape, Out* c, const In* a, const In* b,
                 const Epilogue<Out, In>& epilogue) {
  if (unit != nullptr) {
    multiply_by_tiles(space, *unit, shape, c, a, b, epilogue);
  } else {
    multiply_by_loops(space, shape, c, a, b, epilogue);
    apply_gelu(space, shape, c, epilogue);
  }
}

template <class Out, class In>
const TileUnit* unit_for(const Device& space, const ProductShape& shape, const In* a, const In* b,
                         const Epilogue<Out, In>& epilogue) {
  static KeptAlgorithms<ProductShape, const TileUnit*> kept;
  return kept.of(shape, [&] {
    const auto algorithms = algorithms_of<In>(shape);
    std::vector<std::string> names;
    for (const TileUnit* unit : algorithms) names.emplace_back(name_of(unit));
    return algorithms[algorithm_of<Out>(
        kind_name<Out, In>(shape), names, shape.m * shape.n,
        [&](std::size_t algorithm, Out* c) { multiply_by(algorithms[algorithm], space, shape, c, a, b, epilogue); })];
  });
}

}  // namespace

const char* name_of(const TileUnit* unit) { return unit == nullptr ? kLoops : unit->name; }

template <class T>
const TileUnit* tile_unit_in_use() {
  const TileUnits& units = tile_units<T>();
  return !uses_library() && units.extent > 0 ? &units.unit[0] : nullptr;
}

template <class Space, class Out, class In>
void multiply(const Space& space, const ProductShape& shape, Out* c, const In* a, const In* b,
              const Epilogue<Out, In>& epilogue) {
  const Kokkos::Profiling::ScopedRegion region("kozero::matmul");
  if (uses_library()) {
    multiply_by_library(space, shape, c, a, b, epilogue);
    apply_gelu(space, shape, c, epilogue);
  } else if (has_few_rows(shape)) {
    multiply_few_rows(space, shape, c, a, b, epilogue);
    apply_gelu(space, shape, c, epilogue);
  } else {
    multiply_by(unit_for(space, shape, a, b, epilogue), space, shape, c, a, b, epilogue);
  }
}

/// No algorithm of the host sums an operand.
template <class Space, class T>
bool multiply_and_sum(const Space& space, const ProductShape& shape, float* c, Matrix<const T> a, Matrix<const T> b,
                      Operand /*summed*/, Vector<float> /*workspace*/) {
  multiply<Space, float, T>(space, shape, c, a.data(), b.data(), {});
  return false;
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
  return uses_library() ? library_name() : name_of(tile_unit_in_use<T>());
}

template <class Space, class T>
double product_probe(const Space& space) {
  constexpr std::int64_t kSteps = 10;  // 20 KiB per side
  constexpr std::int64_t kRepeats = 2000;
  const TileUnit* const unit = tile_unit_in_use<T>();
  if (unit == nullptr) return 0.0;
  const std::int64_t workers = space.concurrency();
  Kokkos::parallel_for("kozero::product_probe", Kokkos::RangePolicy<Space>(space, 0, workers), [=](const int) {
    // Processors multiply zeros with less power, and so faster, than numbers like these, whose exponents lie around 0.
    alignas(64) std::uint8_t left[kSteps * kStepBytes];
    alignas(64) std::uint8_t right[kSteps * kStepBytes];
    for (std::int64_t i = 0; i < kSteps * kStepBytes; ++i) {
      const auto mantissa = static_cast<std::uint8_t>(i * 73 >> 3);
      const bool exponent = i % static_cast<std::int64_t>(sizeof(Packed<T>)) == sizeof(Packed<T>) - 1;
      left[i] = exponent ? 0x3F : mantissa;
      right[i] = exponent ? 0xBF : mantissa;
    }
    alignas(64) float c[kTileElements];
    const TileUnitInUse in_use(*unit);
    for (std::int64_t i = 0; i < kRepeats; ++i) in_use.product(c, left, right, kSteps, i > 0);
  });
  return static_cast<double>(2 * kTileElements * kSteps * kStepExtent<T> * kRepeats * workers);
}

#define KOZERO_INSTANTIATE(T)                                                                            \
  template bool multiply_and_sum<Device, T>(const Device&, const ProductShape&, float*, Matrix<const T>, \
                                            Matrix<const T>, Operand, Vector<float>);                    \
  template const TileUnit* tile_unit_in_use<T>();                                                        \
  template double product_probe<Device, T>(const Device&);                                               \
  template const char* multiplier<T>();
KOZERO_FOR_STORED_TYPES(KOZERO_INSTANTIATE)

std::vector<std::string> known_product_algorithms() {
  std::vector<std::string> names = {kLoops};
  const auto add = [&](const TileUnits& units) {
    for (int i = 0; i < units.extent; ++i) names.emplace_back(units.unit[i].name);
  };
  add(tile_units<float>());
  add(tile_units<Bfloat16>());
  return names;
}

bool products_depend_on_threads() { return uses_library() && library_depends_on_threads(); }

std::int64_t product_workspace() { return 0; }

}  // namespace kozero::kernels
