// SPDX-FileCopyrightText: The KoZeRO authors
// SPDX-License-Identifier: Apache-2.0
// attention_cudnn.hpp: attention.hpp by cuDNN's fused kernels, where the machine has cuDNN 9 and cuDNN has a kernel.
// Arrays and their contract are attention.hpp's, without dropout, whose random numbers are ours. cuDNN is opened at run
// time, the library that KOZERO_CUDNN_LIBRARY names or libcudnn.so.9: a program built with its front end runs without
// it too. Plans are built once a shape and kept; the first that cuDNN's heuristic names is taken. A deterministic
// backward keeps all scores' gradients in the workspace, 2 B H T T bytes; another one adds to dq in any order, which
// takes 8 B H T D on sm_80 and 4 B H T D on sm_90 (docs/gpu.md). Errors of a call throw Error(internal); a library that
// the environment names and cannot be opened, Error(input).
#pragma once
#include <compare>
#include <cstdint>
#include <string>

namespace kozero::kernels {

enum class CudnnType { bf16, f16 };

struct CudnnAttention {
  std::int64_t batch, positions, heads, kv_heads, head_dim;
  CudnnType type;
  bool repeats = true;  ///< backward gives the same bits each time

  friend auto operator<=>(const CudnnAttention&, const CudnnAttention&) = default;
};

/// "cuDNN 9.19.0", or "" where there is none.
std::string cudnn_version();

/// Why cuDNN does not compute forward and backward of this shape on this GPU, in its own words; "" where it does.
std::string cudnn_unavailable_reason(const CudnnAttention& shape);

/// Bytes of device memory that either needs; 0 where cuDNN refuses.
std::int64_t cudnn_attention_workspace(const CudnnAttention& shape);

/// Device arrays of 16-bit elements, aligned to 16 bytes; `stream` is a cudaStream_t.
struct CudnnArrays {
  void* y;
  float* logsumexp;
  const void* qkv;
  const void* dy;  ///< null in forward
  void* dqkv;      ///< null in forward
  void* workspace;
};
void cudnn_attention_forward(void* stream, const CudnnAttention& shape, const CudnnArrays& arrays);
void cudnn_attention_backward(void* stream, const CudnnAttention& shape, const CudnnArrays& arrays);

}  // namespace kozero::kernels
