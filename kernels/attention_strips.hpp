// SPDX-FileCopyrightText: The KoZeRO authors
// SPDX-License-Identifier: Apache-2.0
// attention_strips.hpp: attention on a host without tile units, in strips of query rows on oneDNN's products.
// The contract is attention.hpp's; the scratch is that of one thread, in floats (attention_tasks.hpp).
#pragma once
#include <cstdint>

#include <kozero/kernels/attention.hpp>

namespace kozero::kernels {

template <class T>
std::int64_t attention_strips_scratch(const AttentionShape& shape);

template <class Space, class T>
void attention_strips_forward(const Space& space, Matrix<T> y, Matrix<float> logsumexp, MatrixIn<T> qkv,
                              const AttentionShape& shape, Vector<float> workspace);

template <class Space, class T>
void attention_strips_backward(const Space& space, Matrix<T> dqkv, MatrixIn<T> dy, MatrixIn<T> y,
                               Matrix<const float> logsumexp, MatrixIn<T> qkv, const AttentionShape& shape,
                               Vector<float> workspace);

}  // namespace kozero::kernels
