// SPDX-FileCopyrightText: The KoZeRO authors
// SPDX-License-Identifier: Apache-2.0
// attention_device.cpp: attention.hpp on GPUs, by the kernels of attention_teams.hpp.
#include <kozero/core/bfloat16.hpp>
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

template std::int64_t attention_workspace<float>(const AttentionShape&);
template std::int64_t attention_workspace<Bfloat16>(const AttentionShape&);
template void attention_forward<Device, float>(const Device&, Matrix<float>, Matrix<float>, Matrix<const float>,
                                               const AttentionShape&, Vector<float>);
template void attention_backward<Device, float>(const Device&, Matrix<float>, Matrix<const float>, Matrix<const float>,
                                                Matrix<const float>, Matrix<const float>, const AttentionShape&,
                                                Vector<float>);
template void attention_forward<Device, Bfloat16>(const Device&, Matrix<Bfloat16>, Matrix<float>,
                                                  Matrix<const Bfloat16>, const AttentionShape&, Vector<float>);
template void attention_backward<Device, Bfloat16>(const Device&, Matrix<Bfloat16>, Matrix<const Bfloat16>,
                                                   Matrix<const Bfloat16>, Matrix<const float>, Matrix<const Bfloat16>,
                                                   const AttentionShape&, Vector<float>);

}  // namespace kozero::kernels
