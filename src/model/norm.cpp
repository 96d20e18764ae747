// SPDX-FileCopyrightText: The KoZeRO authors
// SPDX-License-Identifier: Apache-2.0
// norm.cpp: calls of the norm kernels with a network's tensors.
#include <kozero/core/precision.hpp>
#include <kozero/model/layer.hpp>
#include <kozero/model/norm.hpp>
#include "kernels/ops/layernorm.hpp"
#include "kernels/ops/rmsnorm.hpp"

namespace kozero::model {

template <class Scalar>
RowStatistics Norm<Scalar>::reserve(MemoryLedger& ledger, const std::string& label, std::int64_t num_rows) const {
  RowStatistics statistics;
  if (kind_ == NormKind::layer) statistics.mean = ledger.take<float>(Memory::activations, label + " mean", num_rows);
  statistics.rstd = ledger.take<float>(Memory::activations, label + " rstd", num_rows);
  return statistics;
}

template <class Scalar>
RowStatistics Norm<Scalar>::take_statistics(Scratch& scratch, std::int64_t num_rows) const {
  RowStatistics statistics;
  if (kind_ == NormKind::layer) statistics.mean = scratch.vector<float>(num_rows);
  statistics.rstd = scratch.vector<float>(num_rows);
  return statistics;
}

template <class Scalar>
void Norm<Scalar>::forward(const Device& space, Matrix<Scalar> y, const RowStatistics& statistics,
                           Matrix<const Scalar> x, const WeightViews<Scalar>& weights) const {
  const auto num_rows = static_cast<std::int64_t>(x.extent(0));
  const auto rstd = slice(statistics.rstd, 0, num_rows);
  if (kind_ == NormKind::layer) {
    const auto beta = shift_ ? weights[*shift_] : Vector<const Scalar>();
    kernels::layernorm_forward(space, y, slice(statistics.mean, 0, num_rows), rstd, x, weights[gain_], beta, eps_);
  } else {
    kernels::rmsnorm_forward(space, y, rstd, x, weights[gain_], eps_);
  }
}

template <class Scalar>
void Norm<Scalar>::backward(const Device& space, Matrix<Scalar> dx, const GradientViews& gradients,
                            Matrix<const Scalar> dy, Matrix<const Scalar> x, const RowStatistics& statistics,
                            const WeightViews<Scalar>& weights, Vector<float> workspace) const {
  const auto num_rows = static_cast<std::int64_t>(x.extent(0));
  const auto rstd = slice(statistics.rstd, 0, num_rows);
  const bool wanted = gradients.wants(gain_) || (shift_ && gradients.wants(*shift_));
  if (kind_ == NormKind::layer) {
    const auto mean = slice(statistics.mean, 0, num_rows);
    if (wanted) {
      const auto dbeta = shift_ ? gradients[*shift_] : Vector<float>();
      kernels::layernorm_backward(space, dx, gradients[gain_], dbeta, dy, x, weights[gain_], mean, rstd, workspace);
    } else {
      kernels::layernorm_add_dx<Device, Scalar>(space, dx, dy, x, weights[gain_], mean, rstd);
    }
  } else if (wanted) {
    kernels::rmsnorm_backward(space, dx, gradients[gain_], dy, x, weights[gain_], rstd, workspace);
  } else {
    kernels::rmsnorm_add_dx<Device, Scalar>(space, dx, dy, x, weights[gain_], rstd);
  }
}

#define KOZERO_INSTANTIATE(T) template class Norm<T>;
KOZERO_FOR_STORED_TYPES(KOZERO_INSTANTIATE)
#undef KOZERO_INSTANTIATE

template <class Scalar>
QkNorm<Scalar>::QkNorm(const Config& config, VectorRef query_gain, VectorRef key_gain)
    : heads_{config.heads, config.kv_heads, config.head_dim},
      eps_(config.norm_eps),
      query_gain_(query_gain),
      key_gain_(key_gain) {}

template <class Scalar>
void QkNorm<Scalar>::forward(const Device& space, Matrix<Scalar> y, Matrix<float> rstd, Matrix<const Scalar> qkv,
                             const WeightViews<Scalar>& weights) const {
  kernels::qk_norm_forward(space, y, rstd, qkv, gains_in(weights), heads_, eps_);
}

template <class Scalar>
void QkNorm<Scalar>::backward(const Device& space, Matrix<Scalar> dqkv, const GradientViews& gradients,
                              Matrix<const Scalar> qkv, Matrix<const float> rstd, const WeightViews<Scalar>& weights,
                              Vector<float> workspace) const {
  if (!gradients.wants(query_gain_) && !gradients.wants(key_gain_)) {
    return kernels::qk_norm_dx<Device, Scalar>(space, dqkv, qkv, rstd, gains_in(weights), heads_);
  }
  const kernels::QkVectors<float> dgains{gradients[query_gain_], gradients[key_gain_]};
  kernels::qk_norm_backward(space, dqkv, dgains, qkv, rstd, gains_in(weights), heads_, workspace);
}

#define KOZERO_INSTANTIATE(T) template class QkNorm<T>;
KOZERO_FOR_STORED_TYPES(KOZERO_INSTANTIATE)

}  // namespace kozero::model
