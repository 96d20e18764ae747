// SPDX-FileCopyrightText: The KoZeRO authors
// SPDX-License-Identifier: Apache-2.0
// matmul_cublaslt.cpp: the matrix product on NVIDIA GPUs, by cuBLASLt (cublaslt_product.hpp), with a GELU or the
// gradient of a bias in its epilogue if there is one. Descriptors and algorithms are cached; the workspace is allocated
// once, at the first product, and freed when Kokkos ends.
#include <array>
#include <initializer_list>
#include <Kokkos_Profiling_ScopedRegion.hpp>
#include <map>

#include "kernels/matmul/cuda/cublaslt_product.hpp"
#include "kernels/matmul/product_tuning.hpp"

namespace kozero::kernels {
namespace {

/// The handle and the workspace, for as long as Kokkos runs.
struct Library {
  cublasLtHandle_t handle = nullptr;
  void* workspace = nullptr;

  void open() {
    check_cublaslt(cublasLtCreate(&handle), "cublasLtCreate");
    const cudaError_t status = cudaMalloc(&workspace, kCublasltWorkspace);
    if (status != cudaSuccess)
      throw Error(Failure::internal, std::string("matmul: cudaMalloc: ") + cudaGetErrorString(status));
    Kokkos::push_finalize_hook([this] { close(); });
  }
  void close() {
    cudaFree(workspace);
    cublasLtDestroy(handle);
    *this = Library{};
  }
};

Library& library() {
  static Library library;
  if (library.handle == nullptr) library.open();
  return library;
}

/// Whether products of floats may use TF32.
bool& tf32() {
  static bool chosen = false;
  return chosen;
}

bool aligned(std::initializer_list<const void*> arrays) {
  std::uintptr_t bits = 0;
  for (const void* array : arrays) bits |= reinterpret_cast<std::uintptr_t>(array);
  return bits % kVectorBytes == 0;
}

/// The GELU that can be fused into the product.
template <class Out, class In>
Fusion fusion_of(const ProductShape& shape, const Epilogue<Out, In>& epilogue, bool aligned) {
  if (!aligned || shape.n % kHiddenMultiple != 0 || shape.accumulate) return Fusion::none;
  if (epilogue.active != nullptr) return Fusion::gelu;
  return epilogue.hidden != nullptr && !shape.has_bias ? Fusion::gelu_gradient : Fusion::none;
}

template <class Out, class In>
std::string name_of(const CublasltKind& kind) {
  constexpr std::array kOfFusion = {"", ", gelu", ", gelu gradient", ", sums of a", ", sums of b"};
  const std::string name = kind_name<Out, In>(kind.shape) + kOfFusion[static_cast<std::size_t>(kind.fusion)];
  return name + (kind.aligned ? "" : ", unaligned") + (kind.tf32 ? ", TF32" : "");
}

template <class Out, class In>
CublasltProduct<Out, In>& product_of(const CublasltKind& kind) {
  static std::map<CublasltKind, CublasltProduct<Out, In>> products;
  return products.try_emplace(kind, library().handle, kind).first->second;
}

/// The plain product by the algorithm of the table, or the default. Timed products do not overwrite c.
template <class Out, class In>
void run(CublasltProduct<Out, In>& product, const CublasltKind& kind, cudaStream_t stream, Out* c, const In* a,
         const In* b, const Epilogue<Out, In>& epilogue) {
  static KeptAlgorithms<CublasltKind, std::size_t> kept;
  void* const workspace = library().workspace;
  const std::size_t algorithm = kept.of(kind, [&] {
    return algorithm_of<Out>(
        name_of<Out, In>(kind), product.algorithms(), kind.shape.m * kind.shape.n,
        [&](std::size_t index, Out* results) { product.run(index, stream, workspace, results, a, b, epilogue); });
  });
  product.run(algorithm, stream, workspace, c, a, b, epilogue);
}

/// The choice between a fused product and a plain product followed by our own kernels.
template <class Out, class In>
struct FusedOrApart {
  CublasltProduct<Out, In>& fused;
  CublasltProduct<Out, In>& plain;
  bool apart_first;  ///< the default is apart

  [[nodiscard]] std::vector<std::string> algorithms() const {
    std::vector<std::string> names = fused.algorithms();
    std::vector<std::string> apart;
    for (const auto& algorithm : plain.algorithms()) apart.push_back("apart " + algorithm);
    names.insert(apart_first ? names.begin() : names.end(), apart.begin(), apart.end());
    return names;
  }

  struct Algorithm {
    bool fused;
    std::size_t index;
  };
  [[nodiscard]] Algorithm at(std::size_t algorithm) const {
    const std::size_t first = apart_first ? plain.num_algorithms() : fused.num_algorithms();
    return {(algorithm < first) != apart_first, algorithm < first ? algorithm : algorithm - first};
  }
};

}  // namespace

template <class Space, class Out, class In>
void multiply(const Space& space, const ProductShape& shape, Out* c, const In* a, const In* b,
              const Epilogue<Out, In>& epilogue) {
  if (!std::is_same_v<Out, In> && shape.has_bias) {  // cuBLASLt adds no bias of another type than c's
    empty_product(space, shape, c, epilogue.bias, shape.accumulate && epilogue.addend == nullptr ? c : epilogue.addend);
    const ProductShape onto_bias{shape.m, shape.n, shape.k, shape.op_a, shape.op_b, true, false};
    return multiply(space, onto_bias, c, a, b, Epilogue<Out, In>{.active = epilogue.active, .hidden = epilogue.hidden});
  }
  const Kokkos::Profiling::ScopedRegion region("kozero::matmul");
  CublasltKind kind{shape, Fusion::none,
                    aligned({c, a, b, epilogue.bias, epilogue.addend, epilogue.active, epilogue.hidden}),
                    std::is_same_v<In, float> && tf32()};
  const CublasltKind plain = kind;
  kind.fusion = fusion_of(shape, epilogue, kind.aligned);
  if (kind.fusion == Fusion::none || !product_of<Out, In>(kind).exists()) {
    run(product_of<Out, In>(plain), plain, stream_of(space), c, a, b, epilogue);
    return apply_gelu(space, shape, c, epilogue);
  }
  const FusedOrApart<Out, In> product{product_of<Out, In>(kind), product_of<Out, In>(plain), false};
  const auto run_algorithm = [&](std::size_t algorithm, Out* results, const Epilogue<Out, In>& of_algorithm) {
    const auto [fused, index] = product.at(algorithm);
    auto& chosen = fused ? product.fused : product.plain;
    chosen.run(index, stream_of(space), library().workspace, results, a, b, of_algorithm);
    if (!fused) apply_gelu(space, shape, results, of_algorithm);
  };
  static KeptAlgorithms<CublasltKind, std::size_t> kept;
  const std::int64_t extent = shape.m * shape.n;
  const std::size_t algorithm = kept.of(kind, [&] {
    // Timed products overwrite neither c nor the output of a GELU.
    return algorithm_of<Out>(name_of<Out, In>(kind), product.algorithms(), 2 * extent,
                             [&](std::size_t index, Out* results) {
                               Epilogue<Out, In> timed = epilogue;
                               if (timed.active != nullptr) timed.active = results + extent;
                               run_algorithm(index, results, timed);
                             });
  });
  run_algorithm(algorithm, c, epilogue);
}

/// The default is apart: no algorithm with an epilogue that sums splits the inner extent, and a weight's gradient has
/// too few tiles for all multiprocessors. Timed products overwrite the workspace with sums, but neither c nor the
/// gradient of a bias.
template <class Space, class T>
bool multiply_and_sum(const Space& space, const ProductShape& shape, float* c, Matrix<const T> a, Matrix<const T> b,
                      Operand summed, Vector<float> workspace) {
  const Matrix<const T> dy = summed == Operand::a ? a : b;
  const CublasltKind kind{shape, summed == Operand::a ? Fusion::sums_of_a : Fusion::sums_of_b,
                          aligned({c, a.data(), b.data(), workspace.data()}), std::is_same_v<T, float> && tf32()};
  if (!kind.aligned || !product_of<float, T>(kind).exists()) {
    multiply<Space, float, T>(space, shape, c, a.data(), b.data(), {});
    return false;
  }
  const Kokkos::Profiling::ScopedRegion region("kozero::matmul");
  const FusedOrApart<float, T> product{product_of<float, T>(kind),
                                       product_of<float, T>({shape, Fusion::none, true, kind.tf32}), true};
  const auto run_algorithm = [&](std::size_t algorithm, float* results) {
    const auto [fused, index] = product.at(algorithm);
    auto& chosen = fused ? product.fused : product.plain;
    chosen.run(index, stream_of(space), library().workspace, results, a.data(), b.data(), {},
               fused ? workspace.data() : nullptr);
    return fused;
  };
  static KeptAlgorithms<CublasltKind, std::size_t> kept;
  const std::size_t algorithm = kept.of(kind, [&] {
    const std::string name = name_of<float, T>(kind);
    return algorithm_of<float>(name, product.algorithms(), shape.m * shape.n, [&](std::size_t index, float* results) {
      if (!run_algorithm(index, results)) bias_backward(space, Vector<float>(results, dy.extent(1)), dy, workspace);
    });
  });
  return run_algorithm(algorithm, c);
}

template void multiply<Device, float, float>(const Device&, const ProductShape&, float*, const float*, const float*,
                                             const Epilogue<float, float>&);
template void multiply<Device, float, Bfloat16>(const Device&, const ProductShape&, float*, const Bfloat16*,
                                                const Bfloat16*, const Epilogue<float, Bfloat16>&);
template void multiply<Device, Bfloat16, Bfloat16>(const Device&, const ProductShape&, Bfloat16*, const Bfloat16*,
                                                   const Bfloat16*, const Epilogue<Bfloat16, Bfloat16>&);
template void multiply<Device, float, Float16>(const Device&, const ProductShape&, float*, const Float16*,
                                               const Float16*, const Epilogue<float, Float16>&);
template void multiply<Device, Float16, Float16>(const Device&, const ProductShape&, Float16*, const Float16*,
                                                 const Float16*, const Epilogue<Float16, Float16>&);

void choose_products(Products products) { tf32() = products == Products::tf32; }

template <class T>
const char* multiplier() {
  return std::is_same_v<T, float> && tf32() ? "cuBLASLt in TF32" : "cuBLASLt";
}

template <class T>
std::string bits_of_products() {
  return multiplier<T>();
}

bool lacks_fused_multiply_add() { return false; }

template <class T>
std::string multiplier_note() {
  return {};
}

template <class Space, class T>
double product_probe(const Space&) {
  return 0.0;
}

#define KOZERO_INSTANTIATE(T)                                                                            \
  template bool multiply_and_sum<Device, T>(const Device&, const ProductShape&, float*, Matrix<const T>, \
                                            Matrix<const T>, Operand, Vector<float>);                    \
  template const char* multiplier<T>();                                                                  \
  template std::string bits_of_products<T>();                                                            \
  template std::string multiplier_note<T>();                                                             \
  template double product_probe<Device, T>(const Device&);
KOZERO_FOR_STORED_TYPES(KOZERO_INSTANTIATE)

std::vector<std::string> known_product_algorithms() { return {}; }

std::string product_library() { return "cuBLASLt " + std::to_string(cublasLtGetVersion()); }

std::string compared_library() { return {}; }

void use_compared_library(bool /*use*/) {}

std::int64_t product_workspace() { return static_cast<std::int64_t>(kCublasltWorkspace); }

}  // namespace kozero::kernels
