// SPDX-FileCopyrightText: The KoZeRO authors
// SPDX-License-Identifier: Apache-2.0
// norm.hpp: a network's row norm: LayerNorm where it has a shift, RMSNorm where it has not.
//   y = gamma * (x - mean) * rstd + beta      or      y = gamma * x * rstd         x, y (N, C)   gamma, beta (C)
// Backward adds into dx, gamma's and beta's gradient. Runs on `space`; returns without fencing.
// Ba, Kiros, Hinton 2016, arXiv:1607.06450; Zhang, Sennrich 2019, arXiv:1910.07467.
#pragma once
#include <optional>

#include <kozero/core/ledger.hpp>
#include <kozero/model/scratch.hpp>
#include <kozero/model/tensor_place.hpp>

namespace kozero::model {

/// What forward leaves for backward, one pair a row.
struct RowStatistics {
  Vector<float> mean;  ///< (N); unused by RMSNorm
  Vector<float> rstd;  ///< (N)
};

template <class Scalar>
class Norm {
 public:
  Norm(float eps, VectorPlace gain, std::optional<VectorPlace> shift = std::nullopt)
      : eps_(eps), gain_(gain), shift_(shift) {}

  [[nodiscard]] std::int64_t num_channels() const { return gain_.extent; }
  [[nodiscard]] RowStatistics reserve(MemoryLedger& ledger, const std::string& label, std::int64_t num_rows) const;

  /// The same for a call that has no backward.
  [[nodiscard]] RowStatistics carve(Scratch& scratch, std::int64_t num_rows) const;

  void forward(const Device& space, Matrix<Scalar> y, const RowStatistics& statistics, Matrix<const Scalar> x,
               Vector<const Scalar> weights) const;

  /// `workspace`: row_reduction_workspace(C) floats.
  void backward(const Device& space, Matrix<Scalar> dx, Vector<float> gradient, Matrix<const Scalar> dy,
                Matrix<const Scalar> x, const RowStatistics& statistics, Vector<const Scalar> weights,
                Vector<float> workspace) const;

 private:
  float eps_;
  VectorPlace gain_;
  std::optional<VectorPlace> shift_;
};

}  // namespace kozero::model
