// SPDX-FileCopyrightText: The KoZeRO authors
// SPDX-License-Identifier: Apache-2.0
// cublaslt_mock.cpp: the functions of cuBLASLt that the matrix product calls.
// It computes by plain loops (cublaslt_mock_product.hpp) and refuses what the manual forbids: operands whose layouts do
// not fit, leading dimensions below the rows, pairs of types that are not in the manual's table, pointers less aligned
// than the algorithm was chosen for, an auxiliary matrix whose leading dimension is no multiple of 8, a workspace that
// is too small, an algorithm that was chosen for another problem. cublasLtGetStatusString() then names the rule.
// cuBLAS 13.0 manual, https://docs.nvidia.com/cuda/cublas/ (cublasLtMatmul, cublasLtMatmulDescAttributes_t,
// cublasLtEpilogue_t).
#include "cublaslt_mock.hpp"

#include <cuda_runtime_api.h>
#include <algorithm>
#include <cstdint>
#include <cstring>
#include <string>
#include <vector>

#include "cublaslt_mock_product.hpp"

namespace kozero::cublaslt_mock {
namespace {

constexpr std::uint64_t kSplitWorkspace = 2 * sizeof(float);

template <class Mine, class Opaque>
Mine& as(Opaque* opaque) {
  static_assert(sizeof(Mine) <= sizeof(*opaque));
  return *reinterpret_cast<Mine*>(opaque);
}

std::string broken_rule;
Counts computed;
bool epilogues_supported = true;

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

template <class T>
void set_attribute(T& to, const void* value, std::size_t bytes) {
  demand(bytes == sizeof(to), "an attribute is set with the size of another type");
  std::memcpy(&to, value, bytes);
}

/// The alignment of a pointer in bytes, at most 256.
std::uint64_t alignment_of(const void* pointer) {
  const auto address = reinterpret_cast<std::uintptr_t>(pointer) | 256U;
  return address & (~address + 1);
}

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

/// The algorithms by number. The heuristic refuses 1; products with a bias gradient have no split K.
std::vector<std::uint64_t> algorithms_of(const Problem& problem, const Preference& preference) {
  std::vector<std::uint64_t> numbers = {0, 1};
  const bool in_float = (preference.reductions & CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE) != 0;
  const bool splits = in_float && preference.workspace >= kSplitWorkspace && !has_sums(problem.operation.epilogue);
  if (splits) numbers.push_back(2);
  numbers.push_back(3);
  if ((preference.reductions & CUBLASLT_REDUCTION_SCHEME_INPLACE) != 0) numbers.push_back(4);
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
    const auto set = [&](auto& to) { set_attribute(to, value, bytes); };
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
    const auto set = [&](auto& to) { set_attribute(to, value, bytes); };
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
    const std::uint32_t epilogue = problem.operation.epilogue;
    demand_support(epilogues_supported || !(has_auxiliary(epilogue) || has_sums(epilogue)), "this epilogue");
    const bool reads_bias = has_bias(problem.operation.epilogue) || has_sums(problem.operation.epilogue);
    std::uint64_t auxiliary_alignment = 256;
    if (reads_bias) auxiliary_alignment = alignment_of(problem.operation.bias);
    if (has_auxiliary(problem.operation.epilogue)) {
      auxiliary_alignment = std::min(auxiliary_alignment, alignment_of(problem.operation.auxiliary));
    }
    for (const std::uint64_t number : algorithms_of(problem, preference)) {
      if (*found == requested) return;
      Algorithm algorithm{problem.hash(), number, {}, auxiliary_alignment, number == 2 ? kSplitWorkspace : 0};
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
                              std::size_t workspace_bytes, cudaStream_t stream) {
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
    compute(Computation(problem, algorithm, arrays, static_cast<float*>(workspace)), stream);
    ++computed[static_cast<cublasLtEpilogue_t>(problem.operation.epilogue)];
  });
}

}  // extern "C"
