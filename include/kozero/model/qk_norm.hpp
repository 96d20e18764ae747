// SPDX-FileCopyrightText: The KoZeRO authors
// SPDX-License-Identifier: Apache-2.0
// qk_norm.hpp: where a network norms each query and key head before RoPE: the two gains, and their use.
//   y = qkv with every q and k head divided by its root mean square and times its gain       qkv, y (N, (H + 2 KV) D)
// Backward takes dy and turns it into the gradient of qkv in place, and adds into both gains' gradients; it needs qkv
// as it was before, and forward's rstd (N, H + KV). Runs on `space`; returns without fencing.
#pragma once
#include <kozero/kernels/qk_norm.hpp>
#include <kozero/model/config.hpp>
#include <kozero/model/tensor_place.hpp>

namespace kozero::model {

template <class Scalar>
class QkNorm {
 public:
  QkNorm(const Config& config, VectorPlace query_gain, VectorPlace key_gain);

  /// The columns of rstd.
  [[nodiscard]] std::int64_t num_heads() const { return heads_.normed(); }

  void forward(const Device& space, Matrix<Scalar> y, Matrix<float> rstd, Matrix<const Scalar> qkv,
               Vector<const Scalar> weights) const;

  /// `workspace`: row_reduction_workspace(D) floats.
  void backward(const Device& space, Matrix<Scalar> dqkv, Vector<float> gradient, Matrix<const Scalar> qkv,
                Matrix<const float> rstd, Vector<const Scalar> weights, Vector<float> workspace) const;

 private:
  template <class T>
  [[nodiscard]] kernels::QkVectors<T> gains_in(const Vector<T>& unit) const {
    return {query_gain_.in(unit), key_gain_.in(unit)};
  }

  kernels::QkHeads heads_;
  float eps_;
  VectorPlace query_gain_;
  VectorPlace key_gain_;
};

}  // namespace kozero::model
