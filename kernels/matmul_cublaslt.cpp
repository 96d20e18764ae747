// SPDX-FileCopyrightText: The KoZeRO authors
// SPDX-License-Identifier: Apache-2.0
// matmul_cublaslt.cpp: the matrix product on NVIDIA GPUs, by cuBLASLt.
// cuBLASLt's matrices are column-major, and a row-major matrix read so is its transpose: c^T = op(b)^T op(a)^T, so the
// operands change places and keep their operations. The algorithm is the first that cuBLASLt's heuristic names for a
// shape, without atomic reductions, and is kept. The workspace is allocated once, at the first product, and freed when
// Kokkos ends.
#include <cublasLt.h>
#include <cuda_runtime.h>
#include <Kokkos_Profiling_ScopedRegion.hpp>
#include <map>
#include <string>
#include <type_traits>

#include <kozero/core/precision.hpp>
#include <kozero/kernels/matmul.hpp>

namespace kozero::kernels {
namespace {

constexpr std::size_t kWorkspaceBytes = std::size_t{32} << 20;

void check(cublasStatus_t status, const char* call) {
  if (status != CUBLAS_STATUS_SUCCESS) {
    throw Error(Failure::internal, std::string("matmul: ") + call + ": " + cublasLtGetStatusString(status));
  }
}

/// The handle and the workspace, for as long as Kokkos runs.
struct Library {
  cublasLtHandle_t handle = nullptr;
  void* workspace = nullptr;

  void open() {
    check(cublasLtCreate(&handle), "cublasLtCreate");
    const cudaError_t status = cudaMalloc(&workspace, kWorkspaceBytes);
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

template <class T>
constexpr cudaDataType_t data_type() {
  if constexpr (std::is_same_v<T, float>) return CUDA_R_32F;
  if constexpr (std::is_same_v<T, Bfloat16>) return CUDA_R_16BF;
  if constexpr (std::is_same_v<T, Float16>) return CUDA_R_16F;
}

/// One shape's descriptors and algorithm. It lives as long as the process.
template <class Out, class In>
class Product {
 public:
  explicit Product(const ProductShape& shape) {
    const bool plain_a = shape.op_a == Op::none;
    const bool plain_b = shape.op_b == Op::none;
    check(cublasLtMatmulDescCreate(&operation_, CUBLAS_COMPUTE_32F, CUDA_R_32F), "cublasLtMatmulDescCreate");
    set(CUBLASLT_MATMUL_DESC_TRANSA, plain_b ? CUBLAS_OP_N : CUBLAS_OP_T);
    set(CUBLASLT_MATMUL_DESC_TRANSB, plain_a ? CUBLAS_OP_N : CUBLAS_OP_T);
    if (shape.has_bias) {
      set(CUBLASLT_MATMUL_DESC_EPILOGUE, CUBLASLT_EPILOGUE_BIAS);
      set(CUBLASLT_MATMUL_DESC_BIAS_DATA_TYPE, data_type<In>());
    }
    a_ = layout(data_type<In>(), plain_a ? shape.m : shape.k, plain_a ? shape.k : shape.m);
    b_ = layout(data_type<In>(), plain_b ? shape.k : shape.n, plain_b ? shape.n : shape.k);
    c_ = layout(data_type<Out>(), shape.m, shape.n);
    beta_ = shape.accumulate ? 1.0F : 0.0F;
    choose_algorithm();
  }

  void run(cudaStream_t stream, Out* c, const In* a, const In* b, const In* bias) {
    if (bias != nullptr) set(CUBLASLT_MATMUL_DESC_BIAS_POINTER, static_cast<const void*>(bias));
    const float alpha = 1.0F;
    check(cublasLtMatmul(library().handle, operation_, &alpha, b, b_, a, a_, &beta_, c, c_, c, c_, &algorithm_,
                         library().workspace, kWorkspaceBytes, stream),
          "cublasLtMatmul");
  }

 private:
  /// A row-major (rows, columns) matrix as cuBLASLt sees it.
  static cublasLtMatrixLayout_t layout(cudaDataType_t type, std::int64_t rows, std::int64_t columns) {
    cublasLtMatrixLayout_t result = nullptr;
    check(cublasLtMatrixLayoutCreate(&result, type, static_cast<std::uint64_t>(columns),
                                     static_cast<std::uint64_t>(rows), columns),
          "cublasLtMatrixLayoutCreate");
    return result;
  }

  template <class Value>
  void set(cublasLtMatmulDescAttributes_t attribute, Value value) {
    check(cublasLtMatmulDescSetAttribute(operation_, attribute, &value, sizeof(value)),
          "cublasLtMatmulDescSetAttribute");
  }

  template <class Value>
  static void prefer(cublasLtMatmulPreference_t preference, cublasLtMatmulPreferenceAttributes_t attribute,
                     Value value) {
    check(cublasLtMatmulPreferenceSetAttribute(preference, attribute, &value, sizeof(value)),
          "cublasLtMatmulPreferenceSetAttribute");
  }

  void choose_algorithm() {
    cublasLtMatmulPreference_t preference = nullptr;
    check(cublasLtMatmulPreferenceCreate(&preference), "cublasLtMatmulPreferenceCreate");
    prefer(preference, CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, kWorkspaceBytes);
    prefer(preference, CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK,
           static_cast<std::uint32_t>(CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE));
    const std::uint32_t of_in = sizeof(In);  // a tensor may start at any element
    const std::uint32_t of_out = sizeof(Out);
    prefer(preference, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES, of_in);
    prefer(preference, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES, of_in);
    prefer(preference, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES, of_out);
    prefer(preference, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES, of_out);
    cublasLtMatmulHeuristicResult_t result{};
    int found = 0;
    const cublasStatus_t status =
        cublasLtMatmulAlgoGetHeuristic(library().handle, operation_, b_, a_, c_, c_, preference, 1, &result, &found);
    cublasLtMatmulPreferenceDestroy(preference);
    check(status, "cublasLtMatmulAlgoGetHeuristic");
    require(found == 1, "matmul: cuBLASLt has no algorithm for this product");
    algorithm_ = result.algo;
  }

  cublasLtMatmulDesc_t operation_ = nullptr;
  cublasLtMatrixLayout_t a_ = nullptr, b_ = nullptr, c_ = nullptr;
  cublasLtMatmulAlgo_t algorithm_{};
  float beta_ = 0.0F;
};

}  // namespace

template <class Space, class Out, class In>
void multiply(const Space& space, const ProductShape& shape, Out* c, const In* a, const In* b,
              const Epilogue<Out, In>& epilogue) {
  const Kokkos::Profiling::ScopedRegion region("kozero::matmul");
  static std::map<ProductShape, Product<Out, In>> products;
  products.try_emplace(shape, shape).first->second.run(space.cuda_stream(), c, a, b, epilogue.bias);
  apply_gelu(space, shape, c, epilogue);
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

// There is nobody else.
void choose_products(Products) {}

template <class T>
const char* multiplier() {
  return "cuBLASLt";
}

template const char* multiplier<float>();
template const char* multiplier<Bfloat16>();
template const char* multiplier<Float16>();

template <class Space, class T>
double product_probe(const Space&) {
  return 0.0;
}

template double product_probe<Device, float>(const Device&);
template double product_probe<Device, Bfloat16>(const Device&);
template double product_probe<Device, Float16>(const Device&);

std::int64_t matmul_memory() { return static_cast<std::int64_t>(kWorkspaceBytes); }

}  // namespace kozero::kernels
