// SPDX-FileCopyrightText: The KoZeRO authors
// SPDX-License-Identifier: Apache-2.0
// cublaslt_mock.cpp: the functions of cuBLASLt and of the CUDA runtime that the matrix product calls, on host memory.
//   d = epilogue(alpha op(a) op(b) + beta c)       column-major: element (i, j) lies at i + j * ld
// It computes by plain loops with sums in float, and refuses what the manual forbids: operands whose layouts do not fit,
// leading dimensions below the rows, pairs of types that are not in the manual's table, pointers less aligned than the
// algorithm was chosen for, an auxiliary matrix whose leading dimension is no multiple of 8, a workspace that is too
// small, an algorithm that was chosen for another problem. cublasLtGetStatusString() then names the broken rule.
//   algorithms   0: one sum over the inner extent. 1: refused by the heuristic. 2: two sums (split K, not with a
//                gradient of a bias), through the workspace. 3: one sum, last element first.
// cuBLAS 13.0 manual, https://docs.nvidia.com/cuda/cublas/ (cublasLtMatmul, cublasLtMatmulDescAttributes_t,
// cublasLtEpilogue_t).
#include "cublaslt_mock.hpp"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <cuda_runtime_api.h>
#include <limits>
#include <string>
#include <vector>

#include <kozero/core/bfloat16.hpp>
#include <kozero/core/float16.hpp>

namespace kozero::cublaslt_mock {
namespace {

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
  std::uint64_t problem;  ///< hash of all that it was chosen for
  std::uint64_t number;
  std::uint64_t alignment[4];
  std::uint64_t auxiliary_alignment;  ///< of the auxiliary matrix and the bias
  std::uint64_t workspace;
};
static_assert(sizeof(Algorithm) == sizeof(cublasLtMatmulAlgo_t));

template <class Mine, class Opaque>
Mine& as(Opaque* opaque) {
  static_assert(sizeof(Mine) <= sizeof(*opaque));
  return *reinterpret_cast<Mine*>(opaque);
}

std::string broken_rule;
Counts computed;
bool epilogues_supported = true;

/// What the manual forbids.
struct Refused {
  cublasStatus_t status;
  std::string rule;
};

void demand(bool holds, const std::string& rule) {
  if (!holds) throw Refused{CUBLAS_STATUS_INVALID_VALUE, rule};
}
void demand_support(bool supported, const std::string& what) {
  if (!supported) throw Refused{CUBLAS_STATUS_NOT_SUPPORTED, what};
}

template <class Work>
cublasStatus_t status_of(const Work& work) {
  try {
    work();
    return CUBLAS_STATUS_SUCCESS;
  } catch (const Refused& refused) {
    broken_rule = refused.rule;
    return refused.status;
  }
}

bool has_auxiliary(std::uint32_t epilogue) { return (epilogue & 128U) != 0; }
bool has_bias(std::uint32_t epilogue) { return epilogue < 256 && (epilogue & CUBLASLT_EPILOGUE_BIAS) != 0; }
bool has_gelu(std::uint32_t epilogue) { return epilogue < 256 && (epilogue & CUBLASLT_EPILOGUE_GELU) != 0; }
bool has_sums(std::uint32_t epilogue) {
  return epilogue == CUBLASLT_EPILOGUE_BGRADA || epilogue == CUBLASLT_EPILOGUE_BGRADB;
}

std::size_t bytes_of(cudaDataType_t type) { return type == CUDA_R_32F ? 4 : 2; }

float element(cudaDataType_t type, const void* data, std::int64_t i) {
  if (type == CUDA_R_32F) return static_cast<const float*>(data)[i];
  if (type == CUDA_R_16BF) return static_cast<float>(static_cast<const Bfloat16*>(data)[i]);
  return static_cast<float>(static_cast<const Float16*>(data)[i]);
}

void store(cudaDataType_t type, void* data, std::int64_t i, float value) {
  if (type == CUDA_R_32F) {
    static_cast<float*>(data)[i] = value;
  } else if (type == CUDA_R_16BF) {
    static_cast<Bfloat16*>(data)[i] = static_cast<Bfloat16>(value);
  } else {
    static_cast<Float16*>(data)[i] = static_cast<Float16>(value);
  }
}

/// A product's descriptors, checked.
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
    demand_support(a.type == b.type && c.type == d.type && (of_float ? d.type == CUDA_R_32F
                                                                     : d.type == a.type || d.type == CUDA_R_32F),
                   "this combination of types");
    demand_support(operation.compute == CUBLAS_COMPUTE_32F ||
                       (operation.compute == CUBLAS_COMPUTE_32F_FAST_TF32 && of_float),
                   "this compute type");
  }

  void check_epilogue() const {
    const std::uint32_t epilogue = operation.epilogue;
    if (has_bias(epilogue) || has_sums(epilogue)) {
      demand(operation.bias != nullptr, "an epilogue with a bias needs its pointer");
      demand_support(operation.bias_type == -1 || operation.bias_type == d.type, "a bias of another type than d");
    }
    if (has_auxiliary(epilogue)) {
      demand(operation.auxiliary != nullptr, "an epilogue with an auxiliary matrix needs its pointer");
      demand(operation.auxiliary_stride >= d.rows, "the auxiliary matrix's leading dimension is below the rows");
      demand_support(operation.auxiliary_stride % 8 == 0, "an auxiliary leading dimension that is no multiple of 8");
    }
    demand_support(epilogues_supported || !(has_auxiliary(epilogue) || has_sums(epilogue)), "this epilogue");
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

/// The bytes on whose multiples a pointer lies, at most 256.
std::uint64_t alignment_of(const void* pointer) {
  const auto address = reinterpret_cast<std::uintptr_t>(pointer) | 256U;
  return address & (~address + 1);
}

struct Arrays {
  const void *a, *b, *c;
  void* d;
  float alpha, beta;
};

/// One call of cublasLtMatmul().
class Computation {
 public:
  Computation(const Problem& problem, const Algorithm& algorithm, const Arrays& arrays, float* workspace)
      : problem_(problem), operation_(problem.operation), algorithm_(algorithm), at_(arrays), workspace_(workspace) {}

  void run() const {
    if (has_sums(operation_.epilogue)) sum_operand();
    for (std::int64_t j = 0; j < problem_.columns(); ++j) {
      for (std::int64_t i = 0; i < problem_.rows(); ++i) finish(i, j, product(i, j));
    }
  }

 private:
  [[nodiscard]] float of_a(std::int64_t i, std::int64_t k) const {
    const bool plain = operation_.transposed_a == CUBLAS_OP_N;
    return element(problem_.a.type, at_.a, plain ? i + k * problem_.a.stride : k + i * problem_.a.stride);
  }
  [[nodiscard]] float of_b(std::int64_t k, std::int64_t j) const {
    const bool plain = operation_.transposed_b == CUBLAS_OP_N;
    return element(problem_.b.type, at_.b, plain ? k + j * problem_.b.stride : j + k * problem_.b.stride);
  }

  [[nodiscard]] float sum(std::int64_t i, std::int64_t j, std::int64_t begin, std::int64_t end) const {
    float sum = 0.0F;
    for (std::int64_t k = begin; k < end; ++k) sum += of_a(i, k) * of_b(k, j);
    return sum;
  }

  [[nodiscard]] float product(std::int64_t i, std::int64_t j) const {
    const std::int64_t inner = problem_.inner();
    if (algorithm_.number == 3) {
      float sum = 0.0F;
      for (std::int64_t k = inner; k-- > 0;) sum += of_a(i, k) * of_b(k, j);
      return sum;
    }
    if (algorithm_.number == 0) return sum(i, j, 0, inner);
    workspace_[0] = sum(i, j, 0, inner / 2);
    workspace_[1] = sum(i, j, inner / 2, inner);
    return workspace_[0] + workspace_[1];
  }

  /// The tanh form, and its derivative.
  static double gelu(double x) { return 0.5 * x * (1.0 + std::tanh(inner_of_gelu(x))); }
  static double inner_of_gelu(double x) { return std::sqrt(2.0 / M_PI) * (x + 0.044715 * x * x * x); }
  static double gelu_slope(double x) {
    const double t = std::tanh(inner_of_gelu(x));
    return 0.5 * (1.0 + t) + 0.5 * x * (1.0 - t * t) * std::sqrt(2.0 / M_PI) * (1.0 + 3.0 * 0.044715 * x * x);
  }

  void finish(std::int64_t i, std::int64_t j, float product) const {
    const cudaDataType_t type = problem_.d.type;
    const std::int64_t place = i + j * problem_.d.stride;
    const std::int64_t auxiliary = i + j * operation_.auxiliary_stride;
    float value = at_.alpha * product;
    if (at_.beta != 0.0F) value += at_.beta * element(type, at_.c, i + j * problem_.c.stride);
    if (has_bias(operation_.epilogue)) value += element(type, operation_.bias, i);
    if (has_gelu(operation_.epilogue)) {
      store(type, operation_.auxiliary, auxiliary, value);
      value = static_cast<float>(gelu(static_cast<double>(value)));
    }
    if (operation_.epilogue == CUBLASLT_EPILOGUE_DGELU) {
      value *= static_cast<float>(gelu_slope(static_cast<double>(element(type, operation_.auxiliary, auxiliary))));
    }
    store(type, at_.d, place, value);
  }

  void sum_operand() const {
    const bool of_a_rows = operation_.epilogue == CUBLASLT_EPILOGUE_BGRADA;
    for (std::int64_t i = 0; i < (of_a_rows ? problem_.rows() : problem_.columns()); ++i) {
      float sum = 0.0F;
      for (std::int64_t k = 0; k < problem_.inner(); ++k) sum += of_a_rows ? of_a(i, k) : of_b(k, i);
      store(problem_.d.type, operation_.bias, i, sum);
    }
  }

  const Problem& problem_;
  const Operation& operation_;
  const Algorithm& algorithm_;
  Arrays at_;
  float* workspace_;
};

void check_pointers(const Problem& problem, const Algorithm& algorithm, const Arrays& at) {
  const void* const pointers[] = {at.a, at.b, at.c, at.d};
  constexpr const char* kNames[] = {"a", "b", "c", "d"};
  for (int i = 0; i < 4; ++i) {
    demand(pointers[i] != nullptr, std::string(kNames[i]) + " is null");
    demand(alignment_of(pointers[i]) >= algorithm.alignment[i],
           std::string(kNames[i]) + " is less aligned than the algorithm was chosen for");
  }
  const Operation& operation = problem.operation;
  const bool reads_bias = has_bias(operation.epilogue) || has_sums(operation.epilogue);
  demand(!reads_bias || alignment_of(operation.bias) >= algorithm.auxiliary_alignment,
         "the bias is less aligned than the algorithm was chosen for");
  demand(!has_auxiliary(operation.epilogue) || alignment_of(operation.auxiliary) >= algorithm.auxiliary_alignment,
         "the auxiliary matrix is less aligned than the algorithm was chosen for");
  demand(at.c != at.d || problem.c == problem.d, "in place, c and d need one layout");
  demand(at.d != at.a && at.d != at.b, "d is one of the operands");
}

std::vector<std::uint64_t> algorithms_of(const Problem& problem, const Preference& preference) {
  std::vector<std::uint64_t> numbers = {0, 1, 3};
  const bool in_float = (preference.reductions & CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE) != 0;
  if (in_float && !has_sums(problem.operation.epilogue)) numbers.insert(numbers.begin() + 2, 2);
  return numbers;
}

}  // namespace

void start_counting() { computed.clear(); }
const Counts& counts() { return computed; }
void support_epilogues(bool supported) { epilogues_supported = supported; }

}  // namespace kozero::cublaslt_mock

using namespace kozero::cublaslt_mock;

extern "C" {

cublasStatus_t cublasLtCreate(cublasLtHandle_t* handle) {
  *handle = reinterpret_cast<cublasLtHandle_t>(&broken_rule);
  return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasLtDestroy(cublasLtHandle_t) { return CUBLAS_STATUS_SUCCESS; }
std::size_t cublasLtGetVersion() { return 0; }
const char* cublasLtGetStatusString(cublasStatus_t) { return broken_rule.c_str(); }

cublasStatus_t cublasLtMatrixLayoutCreate(cublasLtMatrixLayout_t* layout, cudaDataType_t type, std::uint64_t rows,
                                          std::uint64_t columns, std::int64_t stride) {
  *layout = new cublasLtMatrixLayoutOpaque_t{};
  as<Layout>(*layout) = {type, static_cast<std::int64_t>(rows), static_cast<std::int64_t>(columns), stride};
  return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatmulDescCreate(cublasLtMatmulDesc_t* operation, cublasComputeType_t compute,
                                        cudaDataType_t scale) {
  return status_of([&] {
    demand_support(scale == CUDA_R_32F, "a scale type other than float");
    *operation = new cublasLtMatmulDescOpaque_t{};
    as<Operation>(*operation) = Operation{.compute = compute};
  });
}

cublasStatus_t cublasLtMatmulDescSetAttribute(cublasLtMatmulDesc_t opaque, cublasLtMatmulDescAttributes_t attribute,
                                              const void* value, std::size_t bytes) {
  return status_of([&] {
    auto& operation = as<Operation>(opaque);
    const auto set = [&](auto& to) {
      demand(bytes == sizeof(to), "the size of attribute " + std::to_string(attribute));
      std::memcpy(&to, value, bytes);
    };
    switch (attribute) {
      case CUBLASLT_MATMUL_DESC_TRANSA:
        return set(operation.transposed_a);
      case CUBLASLT_MATMUL_DESC_TRANSB:
        return set(operation.transposed_b);
      case CUBLASLT_MATMUL_DESC_EPILOGUE:
        return set(operation.epilogue);
      case CUBLASLT_MATMUL_DESC_BIAS_POINTER:
        return set(operation.bias);
      case CUBLASLT_MATMUL_DESC_BIAS_DATA_TYPE:
        return set(operation.bias_type);
      case CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_POINTER:
        return set(operation.auxiliary);
      case CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_LD:
        return set(operation.auxiliary_stride);
      default:
        demand(false, "attribute " + std::to_string(attribute) + " is not in the mock");
    }
  });
}

cublasStatus_t cublasLtMatmulPreferenceCreate(cublasLtMatmulPreference_t* preference) {
  *preference = new cublasLtMatmulPreferenceOpaque_t{};
  as<Preference>(*preference) = Preference{};
  return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasLtMatmulPreferenceDestroy(cublasLtMatmulPreference_t preference) {
  delete preference;
  return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasLtMatmulPreferenceSetAttribute(cublasLtMatmulPreference_t opaque,
                                                    cublasLtMatmulPreferenceAttributes_t attribute, const void* value,
                                                    std::size_t bytes) {
  return status_of([&] {
    auto& preference = as<Preference>(opaque);
    const auto set = [&](auto& to) {
      demand(bytes == sizeof(to), "the size of preference " + std::to_string(attribute));
      std::memcpy(&to, value, bytes);
    };
    switch (attribute) {
      case CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES:
        return set(preference.workspace);
      case CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK:
        return set(preference.reductions);
      case CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES:
        return set(preference.alignment[0]);
      case CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES:
        return set(preference.alignment[1]);
      case CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES:
        return set(preference.alignment[2]);
      case CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES:
        return set(preference.alignment[3]);
      default:
        demand(false, "preference " + std::to_string(attribute) + " is not in the mock");
    }
  });
}

cublasStatus_t cublasLtMatmulAlgoGetHeuristic(cublasLtHandle_t, cublasLtMatmulDesc_t operation,
                                              cublasLtMatrixLayout_t a, cublasLtMatrixLayout_t b,
                                              cublasLtMatrixLayout_t c, cublasLtMatrixLayout_t d,
                                              cublasLtMatmulPreference_t opaque, int requested,
                                              cublasLtMatmulHeuristicResult_t* results, int* found) {
  *found = 0;
  return status_of([&] {
    const auto& preference = as<Preference>(opaque);
    const Problem problem{as<Operation>(operation), as<Layout>(a), as<Layout>(b), as<Layout>(c), as<Layout>(d)};
    problem.check();
    const bool reads_bias = has_bias(problem.operation.epilogue) || has_sums(problem.operation.epilogue);
    std::uint64_t auxiliary_alignment = 256;
    if (reads_bias) auxiliary_alignment = alignment_of(problem.operation.bias);
    if (has_auxiliary(problem.operation.epilogue)) {
      auxiliary_alignment = std::min(auxiliary_alignment, alignment_of(problem.operation.auxiliary));
    }
    for (const std::uint64_t number : algorithms_of(problem, preference)) {
      if (*found == requested) return;
      Algorithm algorithm{problem.hash(), number, {}, auxiliary_alignment, number == 2 ? 2 * sizeof(float) : 0};
      std::copy_n(preference.alignment, 4, algorithm.alignment);
      cublasLtMatmulHeuristicResult_t& result = results[(*found)++];
      std::memcpy(&result.algo, &algorithm, sizeof(algorithm));
      result.workspaceSize = algorithm.workspace;
      result.state = number == 1 ? CUBLAS_STATUS_NOT_SUPPORTED : CUBLAS_STATUS_SUCCESS;
    }
  });
}

cublasStatus_t cublasLtMatmul(cublasLtHandle_t, cublasLtMatmulDesc_t operation, const void* alpha, const void* a,
                              cublasLtMatrixLayout_t layout_a, const void* b, cublasLtMatrixLayout_t layout_b,
                              const void* beta, const void* c, cublasLtMatrixLayout_t layout_c, void* d,
                              cublasLtMatrixLayout_t layout_d, const cublasLtMatmulAlgo_t* algo, void* workspace,
                              std::size_t workspace_bytes, cudaStream_t) {
  return status_of([&] {
    const Problem problem{as<Operation>(operation), as<Layout>(layout_a), as<Layout>(layout_b), as<Layout>(layout_c),
                          as<Layout>(layout_d)};
    problem.check();
    Algorithm algorithm;
    std::memcpy(&algorithm, algo, sizeof(algorithm));
    demand(algorithm.problem == problem.hash(), "the algorithm was chosen for another problem");
    demand(algorithm.number != 1, "the heuristic refused this algorithm");
    demand(workspace_bytes >= algorithm.workspace && (workspace_bytes == 0 || alignment_of(workspace) >= 16),
           "the workspace is too small or not on a multiple of 16 bytes");
    const Arrays arrays{a, b, c, d, *static_cast<const float*>(alpha), *static_cast<const float*>(beta)};
    check_pointers(problem, algorithm, arrays);
    Computation(problem, algorithm, arrays, static_cast<float*>(workspace)).run();
    ++computed[static_cast<cublasLtEpilogue_t>(problem.operation.epilogue)];
  });
}

cudaError_t cudaMalloc(void** memory, std::size_t bytes) {
  *memory = std::aligned_alloc(256, bytes);
  return *memory == nullptr ? cudaErrorMemoryAllocation : cudaSuccess;
}
cudaError_t cudaFree(void* memory) {
  std::free(memory);
  return cudaSuccess;
}
const char* cudaGetErrorString(cudaError_t) { return "the mock is out of memory"; }

}  // extern "C"
