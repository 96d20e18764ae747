// SPDX-FileCopyrightText: The KoZeRO authors
// SPDX-License-Identifier: Apache-2.0
// attention_device.cpp: attention.hpp on GPUs, by the kernels of attention_teams.hpp.
#include <kozero/core/precision.hpp>
#include <kozero/kernels/attention_teams_backward.hpp>

namespace kozero::kernels {

template <class T>
std::int64_t attention_workspace(const AttentionShape& shape) {
  return shape.batch * shape.heads * shape.positions;
}

template <class Space, class T>
void attention_forward(const Space& space, Matrix<T> y, Matrix<float> logsumexp, MatrixIn<T> qkv,
                       const AttentionShape& shape, Vector<float>) {
  attention_teams_forward<ThreadsOn<Space>>(space, y, logsumexp, qkv, shape);
}

template <class Space, class T>
void attention_backward(const Space& space, Matrix<T> dqkv, MatrixIn<T> dy, MatrixIn<T> y,
                        Matrix<const float> logsumexp, MatrixIn<T> qkv, const AttentionShape& shape,
                        Vector<float> workspace) {
  attention_teams_backward<ThreadsOn<Space>>(space, dqkv, dy, y, logsumexp, qkv, shape, workspace);
}

#define KOZERO_INSTANTIATE(T)                                                                              \
  template std::int64_t attention_workspace<T>(const AttentionShape&);                                     \
  template void attention_forward<Device, T>(const Device&, Matrix<T>, Matrix<float>, Matrix<const T>,     \
                                             const AttentionShape&, Vector<float>);                        \
  template void attention_backward<Device, T>(const Device&, Matrix<T>, Matrix<const T>, Matrix<const T>,  \
                                              Matrix<const float>, Matrix<const T>, const AttentionShape&, \
                                              Vector<float>);
KOZERO_FOR_STORED_TYPES(KOZERO_INSTANTIATE)

}  // namespace kozero::kernels
