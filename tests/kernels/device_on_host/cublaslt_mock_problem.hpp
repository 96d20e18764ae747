// SPDX-FileCopyrightText: The KoZeRO authors
// SPDX-License-Identifier: Apache-2.0
// cublaslt_mock_problem.hpp: a product's descriptors as the mock of cuBLASLt receives them, checked by the manual's
// rules.
//   d = epilogue(alpha op(a) op(b) + beta c)       column-major: element (i, j) is at i + j * stride
#pragma once
#include <cublasLt.h>

#include <algorithm>
#include <cstdint>
#include <iterator>
#include <string>

namespace kozero::cublaslt_mock {

struct Layout {
  cudaDataType_t type;
  std::int64_t rows, columns, stride;

  friend bool operator==(const Layout&, const Layout&) = default;
};

struct Operation {
  cublasComputeType_t compute;
  std::int32_t transposed_a = CUBLAS_OP_N, transposed_b = CUBLAS_OP_N;
  std::uint32_t epilogue = CUBLASLT_EPILOGUE_DEFAULT;
  void* bias = nullptr;
  std::int32_t bias_type = -1;
  void* auxiliary = nullptr;
  std::int64_t auxiliary_stride = 0;
};

struct Preference {
  std::uint64_t workspace = 0;
  std::uint32_t reductions = CUBLASLT_REDUCTION_SCHEME_MASK;
  std::uint32_t alignment[4] = {256, 256, 256, 256};  ///< of a, b, c, d, in bytes
};

/// The words of a cublasLtMatmulAlgo_t.
struct Algorithm {
  std::uint64_t problem;  ///< hash of the problem for which it was chosen
  std::uint64_t number;
  std::uint64_t alignment[4];
  std::uint64_t auxiliary_alignment;  ///< of the auxiliary matrix and the bias
  std::uint64_t workspace;
};
static_assert(sizeof(Algorithm) == sizeof(cublasLtMatmulAlgo_t));

/// What the manual forbids.
struct Refused {
  cublasStatus_t status;
  std::string rule;
};

inline void demand(bool holds, const std::string& rule) {
  if (!holds) throw Refused{CUBLAS_STATUS_INVALID_VALUE, rule};
}
inline void demand_support(bool supported, const std::string& what) {
  if (!supported) throw Refused{CUBLAS_STATUS_NOT_SUPPORTED, what};
}

inline bool has_auxiliary(std::uint32_t epilogue) { return (epilogue & 128U) != 0; }
inline bool has_bias(std::uint32_t epilogue) { return epilogue < 256 && (epilogue & CUBLASLT_EPILOGUE_BIAS) != 0; }
inline bool has_gelu(std::uint32_t epilogue) { return epilogue < 256 && (epilogue & CUBLASLT_EPILOGUE_GELU) != 0; }
inline bool has_sums(std::uint32_t epilogue) {
  return epilogue == CUBLASLT_EPILOGUE_BGRADA || epilogue == CUBLASLT_EPILOGUE_BGRADB;
}

/// A product's descriptors, after the checks.
struct Problem {
  Operation operation;
  Layout a, b, c, d;

  [[nodiscard]] std::int64_t rows() const { return d.rows; }
  [[nodiscard]] std::int64_t columns() const { return d.columns; }
  [[nodiscard]] std::int64_t inner() const { return operation.transposed_a == CUBLAS_OP_N ? a.columns : a.rows; }

  void check() const {
    const bool plain_a = operation.transposed_a == CUBLAS_OP_N;
    const bool plain_b = operation.transposed_b == CUBLAS_OP_N;
    for (const Layout& of : {a, b, c, d}) demand(of.stride >= of.rows, "a leading dimension is below the rows");
    demand((plain_a ? a.rows : a.columns) == d.rows, "op(a) and d differ in rows");
    demand((plain_b ? b.columns : b.rows) == d.columns, "op(b) and d differ in columns");
    demand((plain_b ? b.rows : b.columns) == inner(), "op(a) and op(b) differ in the inner extent");
    demand(c.rows == d.rows && c.columns == d.columns, "c and d differ in extent");
    check_types();
    check_epilogue();
  }

  /// The manual's table of types for sums in float.
  void check_types() const {
    const bool of_float = a.type == CUDA_R_32F;
    demand_support(a.type == b.type && c.type == d.type &&
                       (of_float ? d.type == CUDA_R_32F : d.type == a.type || d.type == CUDA_R_32F),
                   "this combination of types");
    demand_support(
        operation.compute == CUBLAS_COMPUTE_32F || (operation.compute == CUBLAS_COMPUTE_32F_FAST_TF32 && of_float),
        "this compute type");
  }

  void check_epilogue() const {
    const std::uint32_t epilogue = operation.epilogue;
    constexpr std::uint32_t kKnown[] = {CUBLASLT_EPILOGUE_DEFAULT,  CUBLASLT_EPILOGUE_BIAS,
                                        CUBLASLT_EPILOGUE_GELU_AUX, CUBLASLT_EPILOGUE_GELU_AUX_BIAS,
                                        CUBLASLT_EPILOGUE_DGELU,    CUBLASLT_EPILOGUE_BGRADA,
                                        CUBLASLT_EPILOGUE_BGRADB};
    demand_support(std::ranges::find(kKnown, epilogue) != std::end(kKnown), "an epilogue that the mock does not have");
    if (has_bias(epilogue) || has_sums(epilogue)) {
      demand(operation.bias != nullptr, "an epilogue with a bias needs its pointer");
      demand_support(operation.bias_type == -1 || operation.bias_type == d.type, "a bias of another type than d");
    }
    if (has_auxiliary(epilogue)) {
      demand(operation.auxiliary != nullptr, "an epilogue with an auxiliary matrix needs its pointer");
      demand(operation.auxiliary_stride >= d.rows, "the auxiliary matrix's leading dimension is below the rows");
      demand_support(operation.auxiliary_stride % 8 == 0, "an auxiliary leading dimension that is no multiple of 8");
    }
  }

  [[nodiscard]] std::uint64_t hash() const {
    std::uint64_t hash = 14695981039346656037U;  // FNV-1a
    const auto mix = [&](auto value) { hash = (hash ^ static_cast<std::uint64_t>(value)) * 1099511628211U; };
    for (const Layout& of : {a, b, c, d}) {
      mix(of.type);
      mix(of.rows);
      mix(of.columns);
      mix(of.stride);
    }
    mix(operation.compute);
    mix(operation.transposed_a);
    mix(operation.transposed_b);
    mix(operation.epilogue);
    mix(operation.auxiliary_stride);
    return hash;
  }
};

}  // namespace kozero::cublaslt_mock
