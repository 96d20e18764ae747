// SPDX-FileCopyrightText: The KoZeRO authors
// SPDX-License-Identifier: Apache-2.0
// norm.hpp: the norms of a network: LayerNorm or RMSNorm of rows, and RMSNorm of query and key heads, with gradients.
//   y = gamma * (x - mean) * rstd [+ beta]    or      y = gamma * x * rstd         x, y (N, C)   gamma, beta (C)
// Backward of a row norm adds into dx. Backward of both norms adds into the gradients of their parameters, unless all
// of these are frozen. Both run on `space` and return without fencing.
// Ba, Kiros, Hinton 2016, arXiv:1607.06450; Zhang, Sennrich 2019, arXiv:1910.07467.
#pragma once
#include <optional>

#include <kozero/core/ledger.hpp>
#include <kozero/model/config.hpp>
#include <kozero/model/layer.hpp>
#include <kozero/model/parameter_views.hpp>
#include "kernels/ops/rmsnorm.hpp"

namespace kozero::model {

/// Statistics that forward stores for backward, one pair per row.
struct RowStatistics {
  Vector<float> mean;  ///< (N); unused by RMSNorm
  Vector<float> rstd;  ///< (N)
};

enum class NormKind { layer, root_mean_square };

/// A network's row norm. A LayerNorm may have a shift (beta).
template <class Scalar>
class Norm {
 public:
  Norm(NormKind kind, float eps, VectorRef gain, std::optional<VectorRef> shift = std::nullopt)
      : kind_(kind), eps_(eps), gain_(gain), shift_(shift) {}

  [[nodiscard]] std::int64_t num_channels() const { return gain_.extent; }
  [[nodiscard]] RowStatistics reserve(MemoryLedger& ledger, const std::string& label, std::int64_t num_rows) const;

  /// The same from scratch, for a call without backward.
  [[nodiscard]] RowStatistics take_statistics(Scratch& scratch, std::int64_t num_rows) const;

  void forward(const Device& space, Matrix<Scalar> y, const RowStatistics& statistics, Matrix<const Scalar> x,
               const WeightViews<Scalar>& weights) const;

  /// `workspace`: row_reduction_workspace(C) floats.
  void backward(const Device& space, Matrix<Scalar> dx, const GradientViews& gradients, Matrix<const Scalar> dy,
                Matrix<const Scalar> x, const RowStatistics& statistics, const WeightViews<Scalar>& weights,
                Vector<float> workspace) const;

 private:
  NormKind kind_;
  float eps_;
  VectorRef gain_;
  std::optional<VectorRef> shift_;
};

/// RMSNorm of each query and key head before RoPE, with one gain for queries and one for keys.
///   y = qkv, but with each q and k head divided by its root mean square and times its gain    qkv, y (N, (H + 2 KV) D)
/// Backward replaces dy by the gradient of qkv in place. It needs forward's input qkv and forward's rstd (N, H + KV).
template <class Scalar>
class QkNorm {
 public:
  QkNorm(const Config& config, VectorRef query_gain, VectorRef key_gain);

  /// The columns of rstd.
  [[nodiscard]] std::int64_t num_heads() const { return heads_.normed(); }

  void forward(const Device& space, Matrix<Scalar> y, Matrix<float> rstd, Matrix<const Scalar> qkv,
               const WeightViews<Scalar>& weights) const;

  /// `workspace`: row_reduction_workspace(D) floats.
  void backward(const Device& space, Matrix<Scalar> dqkv, const GradientViews& gradients, Matrix<const Scalar> qkv,
                Matrix<const float> rstd, const WeightViews<Scalar>& weights, Vector<float> workspace) const;

 private:
  [[nodiscard]] kernels::QkVectors<const Scalar> gains_in(const WeightViews<Scalar>& weights) const {
    return {weights[query_gain_], weights[key_gain_]};
  }

  kernels::QkHeads heads_;
  float eps_;
  VectorRef query_gain_;
  VectorRef key_gain_;
};

}  // namespace kozero::model
