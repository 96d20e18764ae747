// SPDX-FileCopyrightText: The KoZeRO authors
// SPDX-License-Identifier: Apache-2.0
// matmul_host.cpp: the choice of the algorithm for a product on the host: the processor's best tile unit, or the unit
// that a table names (product_tuning.hpp). Products of at most kFewRows rows are bound by memory bandwidth and computed
// by matmul_few_rows.cpp. No choice's bits depend on the number of threads, but the library's, which only bench kernels
// chooses, to compare.
#include <algorithm>
#include <Kokkos_Profiling_ScopedRegion.hpp>
#include <utility>

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

#if defined(__x86_64__)
constexpr bool kIsX86 = true;
#else
constexpr bool kIsX86 = false;
#endif

bool& uses_library() {
  static bool uses = false;
  return uses;
}

/// Whether products are added before they are rounded, by the unit (not by the base's on x86) and by the kernels around
/// it, which are compiled for one kind of processor.
bool has_fused_multiply_add([[maybe_unused]] const TileUnit& unit) {
#if defined(__FMA__)
  return unit.lines != LineKind::base;
#else
  return !kIsX86;
#endif
}

/// Whether the choice of products permits a unit for matrix products.
bool is_chosen(const TileUnit& unit) { return chosen() != Products::portable || unit.in_order; }

/// The unit of products of T, unless a table names another.
template <class T>
const TileUnit& product_unit() {
  return *std::ranges::find_if(tile_units<T>(), is_chosen);
}

template <class Out, class In>
const TileUnit& unit_for(const Device& space, const ProductShape& shape, const In* a, const In* b,
                         const Epilogue<Out, In>& epilogue) {
  static KeptAlgorithms<std::pair<Products, ProductShape>, const TileUnit*> kept;
  return *kept.of({chosen(), shape}, [&] {
    std::vector<const TileUnit*> algorithms;
    std::vector<std::string> names;
    for (const TileUnit& unit : tile_units<In>()) {
      if (!is_chosen(unit)) continue;
      algorithms.push_back(&unit);
      names.emplace_back(unit.name);
    }
    return algorithms[algorithm_of<Out>(kind_name<Out, In>(shape), names, shape.m * shape.n,
                                        [&](std::size_t algorithm, Out* c) {
                                          multiply_by_tiles(space, *algorithms[algorithm], shape, c, a, b, epilogue);
                                        })];
  });
}

}  // namespace

template <class T>
const TileUnit& attention_unit() {
  return *std::ranges::find_if(tile_units<T>(),
                               [](const TileUnit& unit) { return chosen() != Products::portable || !unit.pairs; });
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
    multiply_by_tiles(space, unit_for(space, shape, a, b, epilogue), shape, c, a, b, epilogue);
  }
}

/// No algorithm of the host sums an operand.
template <class Space, class T>
bool multiply_and_sum(const Space& space, const ProductShape& shape, float* c, Matrix<const T> a, Matrix<const T> b,
                      Operand /*summed*/, Vector<float> /*workspace*/) {
  multiply<Space, float, T>(space, shape, c, a.data(), b.data(), {});
  return false;
}

#define KOZERO_INSTANTIATE(Out, In)                                                                       \
  template void multiply<Device, Out, In>(const Device&, const ProductShape&, Out*, const In*, const In*, \
                                          const Epilogue<Out, In>&);
KOZERO_FOR_PRODUCTS(KOZERO_INSTANTIATE)
#undef KOZERO_INSTANTIATE

void choose_products(Products products) { chosen() = products; }

void use_compared_library(bool use) { uses_library() = use; }

template <class T>
const char* multiplier() {
  return product_unit<T>().name;
}

template <class T>
std::string bits_of_products() {
  const TileUnit& unit = attention_unit<T>();
  if (unit.pairs) return unit.name + std::string(unit.in_order ? " in the order of k" : "");
  return has_fused_multiply_add(unit) ? kPortable : "rounded before they are added";
}

bool lacks_fused_multiply_add() { return !has_fused_multiply_add(tile_units<float>().front()); }

template <class Space, class T>
double product_probe(const Space& space) {
  constexpr std::int64_t kSteps = 10;  // 20 KiB per side
  constexpr std::int64_t kRepeats = 2000;
  const TileUnit& unit = product_unit<T>();
  const std::int64_t workers = space.concurrency();
  Kokkos::parallel_for("kozero::product_probe", Kokkos::RangePolicy<Space>(space, 0, workers), [=](const int) {
    // Processors multiply zeros with less power, and so faster, than numbers like these, whose exponents lie around 0.
    alignas(64) std::uint8_t left[kSteps * kStepBytes];
    alignas(64) std::uint8_t right[kSteps * kStepBytes];
    for (std::int64_t i = 0; i < kSteps * kStepBytes; ++i) {
      const auto mantissa = static_cast<std::uint8_t>(i * 73 >> 3);
      const bool exponent = i % (unit.pairs ? 2 : 4) == (unit.pairs ? 1 : 3);
      left[i] = exponent ? 0x3F : mantissa;
      right[i] = exponent ? 0xBF : mantissa;
    }
    alignas(64) float c[kTileElements];
    const TileUnitInUse in_use(unit);
    for (std::int64_t i = 0; i < kRepeats; ++i) in_use.product({c, i > 0 ? c : nullptr, left, right, kSteps});
  });
  const std::int64_t extent = unit.pairs ? kStepExtent<Bfloat16> : kStepExtent<float>;
  return static_cast<double>(2 * kTileElements * kSteps * extent * kRepeats * workers);
}

#define KOZERO_INSTANTIATE(T)                                                                            \
  template bool multiply_and_sum<Device, T>(const Device&, const ProductShape&, float*, Matrix<const T>, \
                                            Matrix<const T>, Operand, Vector<float>);                    \
  template const TileUnit& attention_unit<T>();                                                          \
  template double product_probe<Device, T>(const Device&);                                               \
  template const char* multiplier<T>();                                                                  \
  template std::string bits_of_products<T>();
KOZERO_FOR_STORED_TYPES(KOZERO_INSTANTIATE)

std::vector<std::string> known_product_algorithms() {
  std::vector<std::string> names;
  for (const TileUnit& unit : tile_units<Bfloat16>()) names.emplace_back(unit.name);
  return names;
}

std::string product_library() { return "KoZeRO's units"; }

std::int64_t product_workspace() { return 0; }

}  // namespace kozero::kernels
