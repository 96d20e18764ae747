// SPDX-FileCopyrightText: The KoZeRO authors
// SPDX-License-Identifier: Apache-2.0
// attention_tiles.hpp: attention on a host's tile units, in blocks of 32 keys by 32 queries up to the diagonal.
//   forward    S^T = K Q^T      P^T = exp(S^T / sqrt(D) - l)                 Y^T = V^T (m P)^T
//   backward   dP^T = V dY^T    dS^T = P^T * (m dP^T - rowsum(dY * Y))
//              dV += (m P)^T dY      dK += dS^T Q / sqrt(D)      dQ^T += K^T dS^T / sqrt(D)
// Scores are made transposed, so that P^T and dS^T are operands of the products that follow as they lie. In bf16 P and
// dS are rounded before those products; fp16 is multiplied as float; all sums are in float. Bits depend on the unit
// alone. The contract is attention.hpp's; the scratch is that of one thread, in floats (attention_tasks.hpp).
#pragma once
#include <cstdint>

#include <kozero/kernels/attention.hpp>
#include <kozero/kernels/tile_product.hpp>

namespace kozero::kernels {

template <class T>
std::int64_t attention_tiles_forward_scratch(const AttentionShape& shape);

template <class T>
std::int64_t attention_tiles_backward_scratch(const AttentionShape& shape);

template <class Space, class T>
void attention_tiles_forward(const Space& space, const TileUnit& unit, Matrix<T> y, Matrix<float> logsumexp,
                             MatrixIn<T> qkv, const AttentionShape& shape, Vector<float> workspace);

template <class Space, class T>
void attention_tiles_backward(const Space& space, const TileUnit& unit, Matrix<T> dqkv, MatrixIn<T> dy, MatrixIn<T> y,
                              Matrix<const float> logsumexp, MatrixIn<T> qkv, const AttentionShape& shape,
                              Vector<float> workspace);

}  // namespace kozero::kernels
