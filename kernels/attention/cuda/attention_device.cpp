// SPDX-FileCopyrightText: The KoZeRO authors
// SPDX-License-Identifier: Apache-2.0
// attention_device.cpp: attention.hpp on GPUs: cuDNN's fused kernels if available (16 bits, no dropout, no documents),
// else the kernels of attention_teams.hpp. Only the shape decides, so forward and backward agree and a run repeats.
#include <algorithm>
#include <Kokkos_Profiling_ScopedRegion.hpp>
#include <type_traits>

#include <kozero/core/precision.hpp>
#include "kernels/attention/cuda/attention_cudnn.hpp"
#include "kernels/attention/cuda/attention_teams_backward.hpp"

namespace kozero::kernels {
namespace {

bool& repeats() {
  static bool chosen = true;
  return chosen;
}

template <class T>
CudnnAttention cudnn_shape(const AttentionShape& shape) {
  const CudnnType type = std::is_same_v<T, Float16> ? CudnnType::f16 : CudnnType::bf16;
  return {shape.batch, shape.positions, shape.heads, shape.kv_heads, shape.head_dim, type, repeats()};
}

/// Why cuDNN does not compute attention of this shape; "" if it does.
template <class T>
std::string reason_against_cudnn(const AttentionShape& shape) {
  if (shape.dropout > 0.0F) return "not used with dropout";
  if (shape.documents.given()) return "not used with masked documents";
  return cudnn_unavailable_reason(cudnn_shape<T>(shape));
}

template <class T>
bool by_cudnn(const AttentionShape& shape) {
  return !std::is_same_v<T, float> && reason_against_cudnn<T>(shape).empty();
}

constexpr std::int64_t kFloat = sizeof(float);
constexpr std::int64_t kWorkspaceAlignment = 256;  // bytes, of cuDNN's workspace

float* aligned_up(float* memory) {
  const auto address = reinterpret_cast<std::uintptr_t>(memory);
  return reinterpret_cast<float*>((address + kWorkspaceAlignment - 1) / kWorkspaceAlignment * kWorkspaceAlignment);
}

}  // namespace

void choose_attention(Attention attention) { repeats() = attention == Attention::repeating; }

template <class T>
std::string attention_by(const AttentionShape& shape) {
  constexpr const char* kOwn = "blocks in shared memory";
  if (std::is_same_v<T, float>) return kOwn;  // cuDNN has no attention in f32
  if (by_cudnn<T>(shape)) return cudnn_version();
  const std::string why = reason_against_cudnn<T>(shape);
  return std::string(kOwn) + " (cuDNN: " + why.substr(0, why.find('\n')) + ")";
}

template <class T>
std::int64_t attention_workspace(const AttentionShape& shape) {
  const std::int64_t delta = shape.batch * shape.heads * shape.positions;
  const std::int64_t bytes =
      by_cudnn<T>(shape) ? cudnn_attention_workspace(cudnn_shape<T>(shape)) + kWorkspaceAlignment : 0;
  return std::max(delta, (bytes + kFloat - 1) / kFloat);
}

template <class Space, class T>
void attention_forward(const Space& space, Matrix<T> y, Matrix<float> logsumexp, MatrixIn<T> qkv,
                       const AttentionShape& shape, Vector<float> workspace) {
  const Kokkos::Profiling::ScopedRegion region("kozero::attention_forward");
  if (!by_cudnn<T>(shape)) return attention_teams_forward<ThreadsOn<Space>>(space, y, logsumexp, qkv, shape);
  require_attention(shape, y, logsumexp, qkv);
  cudnn_attention_forward(space.cuda_stream(), cudnn_shape<T>(shape),
                          {y.data(), logsumexp.data(), qkv.data(), nullptr, nullptr, aligned_up(workspace.data())});
}

template <class Space, class T>
void attention_backward(const Space& space, Matrix<T> dqkv, MatrixIn<T> dy, MatrixIn<T> y,
                        Matrix<const float> logsumexp, MatrixIn<T> qkv, const AttentionShape& shape,
                        Vector<float> workspace) {
  const Kokkos::Profiling::ScopedRegion region("kozero::attention_backward");
  if (!by_cudnn<T>(shape)) {
    return attention_teams_backward<ThreadsOn<Space>>(space, dqkv, dy, y, logsumexp, qkv, shape, workspace);
  }
  require_attention(shape, y, logsumexp, qkv);
  require_attention(shape, dy, logsumexp, dqkv);
  cudnn_attention_backward(space.cuda_stream(), cudnn_shape<T>(shape),
                           {const_cast<T*>(y.data()), const_cast<float*>(logsumexp.data()), qkv.data(), dy.data(),
                            dqkv.data(), aligned_up(workspace.data())});
}

#define KOZERO_INSTANTIATE(T)                                                                              \
  template std::string attention_by<T>(const AttentionShape&);                                             \
  template std::int64_t attention_workspace<T>(const AttentionShape&);                                     \
  template void attention_forward<Device, T>(const Device&, Matrix<T>, Matrix<float>, Matrix<const T>,     \
                                             const AttentionShape&, Vector<float>);                        \
  template void attention_backward<Device, T>(const Device&, Matrix<T>, Matrix<const T>, Matrix<const T>,  \
                                              Matrix<const float>, Matrix<const T>, const AttentionShape&, \
                                              Vector<float>);
KOZERO_FOR_STORED_TYPES(KOZERO_INSTANTIATE)

}  // namespace kozero::kernels
