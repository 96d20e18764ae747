// SPDX-FileCopyrightText: The KoZeRO authors
// SPDX-License-Identifier: Apache-2.0
// cublaslt_product.hpp: one product of matmul.hpp in terms of cuBLASLt: descriptors, epilogue, algorithm.
// cuBLASLt's matrices are column-major, and a row-major matrix read as column-major is its transpose:
// c^T = op(b)^T op(a)^T, so the operands swap and keep their operations. Version 13.1 rounds the
// product to c's type before it adds bias and addend. Epilogues:
//   bias             c = ... + bias, and in any case + addend
//   gelu             hidden (its auxiliary output) = ... + bias, c = gelu(hidden)     N a multiple of kHiddenMultiple
//   gelu_gradient    c = (...) * gelu'(hidden)
//   sums_of_a        sums(m) = sum over the inner extent of op(a): if a is dy, the gradient of a bias
//   sums_of_b        sums(n) = the same of op(b)
// The algorithms are those that cuBLASLt's heuristic returns for the kind of product, except reductions by atomics; the
// first is the default (product_tuning.hpp). An algorithm's name is cuBLASLt's description in hexadecimal, valid for
// one version of cuBLASLt and one GPU. If there is no algorithm with a GELU or sums, exists() is false, and separate
// kernels compute them.
#pragma once
#include <cublasLt.h>
#include <cuda_runtime.h>
#include <sstream>
#include <string>
#include <type_traits>
#include <vector>

#include <kozero/core/precision.hpp>
#include "kernels/matmul/matmul.hpp"

namespace kozero::kernels {

inline constexpr std::size_t kCublasltWorkspace = std::size_t{32} << 20;
inline constexpr int kMostAlgorithms = 16;
inline constexpr std::int64_t kHiddenMultiple = 8;  ///< of the leading dimension of hidden, in elements
inline constexpr std::uintptr_t kVectorBytes = 16;  ///< of the widest load: alignment for kernels on tensor cores

enum class Fusion { none, gelu, gelu_gradient, sums_of_a, sums_of_b };

/// The key of a product's descriptors and algorithm.
struct CublasltKind {
  ProductShape shape;
  Fusion fusion = Fusion::none;
  bool aligned = false;  ///< all arrays are aligned to kVectorBytes
  bool tf32 = false;     ///< floats on tensor cores

  friend auto operator<=>(const CublasltKind&, const CublasltKind&) = default;
};

inline void check_cublaslt(cublasStatus_t status, const char* call) {
  if (status == CUBLAS_STATUS_SUCCESS) return;
  throw Error(Failure::internal, std::string("matmul: ") + call + ": " + cublasLtGetStatusString(status));
}

/// The stream of a space's kernels; null if a test computes on the host.
template <class Space>
cudaStream_t stream_of(const Space& space) {
  if constexpr (requires { space.cuda_stream(); }) {
    return space.cuda_stream();
  } else {
    return nullptr;
  }
}

template <class T>
constexpr cudaDataType_t cublaslt_type() {
  if constexpr (std::is_same_v<T, float>) return CUDA_R_32F;
  if constexpr (std::is_same_v<T, Bfloat16>) return CUDA_R_16BF;
  if constexpr (std::is_same_v<T, Float16>) return CUDA_R_16F;
}

/// Lives as long as the process.
template <class Out, class In>
class CublasltProduct {
 public:
  CublasltProduct(cublasLtHandle_t handle, const CublasltKind& kind) : handle_(handle), kind_(kind) {
    const ProductShape& shape = kind.shape;
    const bool plain_a = shape.op_a == Op::none;
    const bool plain_b = shape.op_b == Op::none;
    check_cublaslt(cublasLtMatmulDescCreate(&operation_, kind.tf32 ? CUBLAS_COMPUTE_32F_FAST_TF32 : CUBLAS_COMPUTE_32F,
                                            CUDA_R_32F),
                   "cublasLtMatmulDescCreate");
    set(CUBLASLT_MATMUL_DESC_TRANSA, plain_b ? CUBLAS_OP_N : CUBLAS_OP_T);
    set(CUBLASLT_MATMUL_DESC_TRANSB, plain_a ? CUBLAS_OP_N : CUBLAS_OP_T);
    set_epilogue();
    a_ = layout(cublaslt_type<In>(), plain_a ? shape.m : shape.k, plain_a ? shape.k : shape.m);
    b_ = layout(cublaslt_type<In>(), plain_b ? shape.k : shape.n, plain_b ? shape.n : shape.k);
    c_ = layout(cublaslt_type<Out>(), shape.m, shape.n);
    find_algorithms();
  }

  /// Whether cuBLASLt can compute this product.
  [[nodiscard]] bool exists() const { return !algorithms_.empty(); }
  [[nodiscard]] std::size_t num_algorithms() const { return algorithms_.size(); }

  /// The names of the algorithms.
  [[nodiscard]] std::vector<std::string> algorithms() const {
    std::vector<std::string> names;
    for (const auto& algorithm : algorithms_) {
      std::ostringstream name;
      for (const std::uint64_t word : algorithm.data) name << (name.tellp() > 0 ? "-" : "") << std::hex << word;
      names.push_back(name.str());
    }
    return names;
  }

  void run(std::size_t algorithm, cudaStream_t stream, void* workspace, Out* c, const In* a, const In* b,
           const Epilogue<Out, In>& epilogue, float* sums = nullptr) {
    if (sums != nullptr) set(CUBLASLT_MATMUL_DESC_BIAS_POINTER, static_cast<void*>(sums));
    if (epilogue.bias != nullptr) set(CUBLASLT_MATMUL_DESC_BIAS_POINTER, static_cast<const void*>(epilogue.bias));
    const bool gelu = kind_.fusion == Fusion::gelu;
    if (gelu) set(CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_POINTER, static_cast<const void*>(c));
    if (kind_.fusion == Fusion::gelu_gradient) {
      set(CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_POINTER, static_cast<const void*>(epilogue.hidden));
    }
    Out* const result = gelu ? epilogue.active : c;
    const Out* const addend = epilogue.addend == nullptr ? result : epilogue.addend;  // read if beta is 1
    const float alpha = 1.0F;
    const float beta = kind_.shape.accumulate ? 1.0F : 0.0F;
    check_cublaslt(cublasLtMatmul(handle_, operation_, &alpha, b, b_, a, a_, &beta, addend, c_, result, c_,
                                  &algorithms_[algorithm], workspace, kCublasltWorkspace, stream),
                   "cublasLtMatmul");
  }

 private:
  /// cuBLASLt's layout of a row-major (rows, columns) matrix.
  static cublasLtMatrixLayout_t layout(cudaDataType_t type, std::int64_t rows, std::int64_t columns) {
    cublasLtMatrixLayout_t result = nullptr;
    check_cublaslt(cublasLtMatrixLayoutCreate(&result, type, static_cast<std::uint64_t>(columns),
                                              static_cast<std::uint64_t>(rows), columns),
                   "cublasLtMatrixLayoutCreate");
    return result;
  }

  template <class Value>
  void set(cublasLtMatmulDescAttributes_t attribute, Value value) {
    check_cublaslt(cublasLtMatmulDescSetAttribute(operation_, attribute, &value, sizeof(value)),
                   "cublasLtMatmulDescSetAttribute");
  }

  [[nodiscard]] cublasLtEpilogue_t epilogue() const {
    const bool biased = kind_.shape.has_bias;
    switch (kind_.fusion) {
      case Fusion::none:
        return biased ? CUBLASLT_EPILOGUE_BIAS : CUBLASLT_EPILOGUE_DEFAULT;
      case Fusion::gelu:
        return biased ? CUBLASLT_EPILOGUE_GELU_AUX_BIAS : CUBLASLT_EPILOGUE_GELU_AUX;
      case Fusion::gelu_gradient:
        return CUBLASLT_EPILOGUE_DGELU;
      case Fusion::sums_of_a:
        return CUBLASLT_EPILOGUE_BGRADB;  // the operands swap
      case Fusion::sums_of_b:
        return CUBLASLT_EPILOGUE_BGRADA;
    }
    return CUBLASLT_EPILOGUE_DEFAULT;
  }

  void set_epilogue() {
    set(CUBLASLT_MATMUL_DESC_EPILOGUE, epilogue());
    const bool sums = kind_.fusion == Fusion::sums_of_a || kind_.fusion == Fusion::sums_of_b;
    if (sums || kind_.shape.has_bias) {
      set(CUBLASLT_MATMUL_DESC_BIAS_DATA_TYPE, sums ? CUDA_R_32F : cublaslt_type<In>());
      set(CUBLASLT_MATMUL_DESC_BIAS_POINTER, sums ? any_pointer<float>() : any_pointer<In>());
    }
    if (kind_.fusion == Fusion::gelu || kind_.fusion == Fusion::gelu_gradient) {
      set(CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_LD, kind_.shape.n);
      set(CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_POINTER, any_pointer<Out>());
    }
  }

  /// A stand-in for run()'s pointers with the same alignment, which the heuristic reads.
  template <class T>
  [[nodiscard]] const void* any_pointer() const {
    return reinterpret_cast<const void*>(kind_.aligned ? kVectorBytes : std::uintptr_t{sizeof(T)});
  }

  template <class Value>
  static void prefer(cublasLtMatmulPreference_t preference, cublasLtMatmulPreferenceAttributes_t attribute,
                     Value value) {
    check_cublaslt(cublasLtMatmulPreferenceSetAttribute(preference, attribute, &value, sizeof(value)),
                   "cublasLtMatmulPreferenceSetAttribute");
  }

  void find_algorithms() {
    cublasLtMatmulPreference_t preference = nullptr;
    check_cublaslt(cublasLtMatmulPreferenceCreate(&preference), "cublasLtMatmulPreferenceCreate");
    prefer(preference, CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, kCublasltWorkspace);
    prefer(preference, CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK,
           static_cast<std::uint32_t>(CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE));
    const auto of_in = static_cast<std::uint32_t>(kind_.aligned ? kVectorBytes : sizeof(In));
    const auto of_out = static_cast<std::uint32_t>(kind_.aligned ? kVectorBytes : sizeof(Out));
    prefer(preference, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES, of_in);
    prefer(preference, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES, of_in);
    prefer(preference, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES, of_out);
    prefer(preference, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES, of_out);
    cublasLtMatmulHeuristicResult_t results[kMostAlgorithms] = {};
    int found = 0;
    const cublasStatus_t status = cublasLtMatmulAlgoGetHeuristic(handle_, operation_, b_, a_, c_, c_, preference,
                                                                 kMostAlgorithms, results, &found);
    cublasLtMatmulPreferenceDestroy(preference);
    for (int i = 0; status == CUBLAS_STATUS_SUCCESS && i < found; ++i) {
      if (results[i].state == CUBLAS_STATUS_SUCCESS) algorithms_.push_back(results[i].algo);
    }
    if (kind_.fusion != Fusion::none) return;
    check_cublaslt(status, "cublasLtMatmulAlgoGetHeuristic");
    require(exists(), "matmul: cuBLASLt has no algorithm for this product");
  }

  cublasLtHandle_t handle_;
  CublasltKind kind_;
  cublasLtMatmulDesc_t operation_ = nullptr;
  cublasLtMatrixLayout_t a_ = nullptr, b_ = nullptr, c_ = nullptr;
  std::vector<cublasLtMatmulAlgo_t> algorithms_;
};

}  // namespace kozero::kernels
