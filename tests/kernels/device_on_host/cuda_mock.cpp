// SPDX-FileCopyrightText: The KoZeRO authors
// SPDX-License-Identifier: Apache-2.0
// cuda_mock.cpp: the functions of the CUDA runtime that the matrix product and its mock call, on host memory without
// streams.
#include <cuda_runtime_api.h>
#include <cstdlib>

#include "cublaslt_mock_product.hpp"

namespace kozero::cublaslt_mock {
void compute(const Computation& computation, void*) { computation.run(); }
}  // namespace kozero::cublaslt_mock

extern "C" {

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
