// SPDX-FileCopyrightText: The KoZeRO authors
// SPDX-License-Identifier: Apache-2.0
#include <kozero/core/precision.hpp>
#include <kozero/model/qk_norm.hpp>

namespace kozero::model {

template <class Scalar>
QkNorm<Scalar>::QkNorm(const Config& config, VectorPlace query_gain, VectorPlace key_gain)
    : heads_{config.heads, config.kv_heads, config.head_dim},
      eps_(config.norm_eps),
      query_gain_(query_gain),
      key_gain_(key_gain) {}

template <class Scalar>
void QkNorm<Scalar>::forward(const Device& space, Matrix<Scalar> y, Matrix<float> rstd, Matrix<const Scalar> qkv,
                             Vector<const Scalar> weights) const {
  kernels::qk_norm_forward(space, y, rstd, qkv, gains_in(weights), heads_, eps_);
}

template <class Scalar>
void QkNorm<Scalar>::backward(const Device& space, Matrix<Scalar> dqkv, Vector<float> gradient,
                              Matrix<const Scalar> qkv, Matrix<const float> rstd, Vector<const Scalar> weights,
                              Vector<float> workspace) const {
  kernels::qk_norm_backward(space, dqkv, gains_in(gradient), qkv, rstd, gains_in(weights), heads_, workspace);
}

#define KOZERO_INSTANTIATE(T) template class QkNorm<T>;
KOZERO_FOR_STORED_TYPES(KOZERO_INSTANTIATE)

}  // namespace kozero::model
