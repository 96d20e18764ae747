// SPDX-FileCopyrightText: The KoZeRO authors
// SPDX-License-Identifier: Apache-2.0
// attention_cudnn.hpp: attention.hpp by cuDNN's fused kernels, if the machine has cuDNN 9 and cuDNN supports the shape.
// Arrays and contract are attention.hpp's, but without dropout, whose random numbers are ours. cuDNN is loaded at run
// time from KOZERO_CUDNN_LIBRARY or libcudnn.so.9, so a program built with cuDNN's front end also runs without cuDNN.
// Plans are built once per shape and kept; the first plan of cuDNN's heuristic is used. A deterministic backward keeps
// the gradients of all scores in the workspace, 2 B H T T bytes. A nondeterministic backward adds to dq in any order
// and takes 8 B H T D on sm_80 and 4 B H T D on sm_90 (docs/gpu.md). A failed call throws Error(internal); a library
// that the environment names but that cannot be opened throws Error(input).
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

/// "cuDNN 9.19.0", or "" without cuDNN.
std::string cudnn_version();

/// Why cuDNN cannot compute forward and backward of this shape on this GPU, in cuDNN's words; "" if it can.
std::string cudnn_unavailable_reason(const CudnnAttention& shape);

/// Bytes of device memory that suffice for forward and backward; 0 if cuDNN refuses the shape.
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
