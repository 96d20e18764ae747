// SPDX-FileCopyrightText: The KoZeRO authors
// SPDX-License-Identifier: Apache-2.0
// projection.hpp: a linear map of rows with its gradients, and the gradient of a branch of the residual stream.
//   y = x W + b        W (I, O)   GPT-2's orientation          x (N, I)   y (N, O)   b (O), if any
//   y = x W^T + b      W (O, I)   Llama's orientation
// backward_input overwrites dx. backward_weights adds into the gradients of W and b; if W's gradient
// begins, it overwrites that; if both are frozen, it does nothing. Runs on `space`; returns without fencing.
#pragma once
#include <optional>
#include <string>

#include <kozero/core/parameter_access.hpp>
#include <kozero/model/layer.hpp>
#include <kozero/model/parameter_views.hpp>
#include "kernels/matmul/matmul.hpp"

namespace kozero::model {

enum class Orientation { input_output, output_input };

template <class Scalar>
class Projection {
 public:
  Projection(Orientation orientation, MatrixRef weight, std::optional<VectorRef> bias = std::nullopt)
      : orientation_(orientation), weight_(weight), bias_(bias) {}

  [[nodiscard]] std::int64_t num_inputs() const;
  [[nodiscard]] std::int64_t num_outputs() const;

  void forward(const Device& space, Matrix<Scalar> y, Matrix<const Scalar> x, const WeightViews<Scalar>& weights) const;

  /// y = ... + residual (N, O), rounded as matmul_add says.
  void forward_onto(const Device& space, Matrix<Scalar> y, Matrix<const Scalar> residual, Matrix<const Scalar> x,
                    const WeightViews<Scalar>& weights) const;

  /// y, and active = gelu(y).
  void forward_gelu(const Device& space, Matrix<Scalar> y, Matrix<Scalar> active, Matrix<const Scalar> x,
                    const WeightViews<Scalar>& weights) const;

  void backward_input(const Device& space, Matrix<Scalar> dx, Matrix<const Scalar> dy,
                      const WeightViews<Scalar>& weights) const;

  /// dhidden = dx gelu'(hidden), where x = gelu(hidden).
  void backward_input_of_gelu(const Device& space, Matrix<Scalar> dhidden, Matrix<const Scalar> dy,
                              Matrix<const Scalar> hidden, const WeightViews<Scalar>& weights) const;

  /// `workspace`: row_reduction_workspace(O) floats if there is a bias.
  void backward_weights(const Device& space, const GradientViews& gradients, Matrix<const Scalar> dy,
                        Matrix<const Scalar> x, Vector<float> workspace) const;

  /// backward_input and backward_weights.
  void backward(const Device& space, Matrix<Scalar> dx, const GradientViews& gradients, Matrix<const Scalar> dy,
                Matrix<const Scalar> x, const WeightViews<Scalar>& weights, Vector<float> workspace) const;

 private:
  /// op of the products y = x op(W) and dx = dy op(W).
  [[nodiscard]] kernels::Op forwards() const;
  [[nodiscard]] kernels::Op backwards() const;

  Orientation orientation_;
  MatrixRef weight_;
  std::optional<VectorRef> bias_;
};

/// The gradient of a branch that AdaptedProjection::join added: dropout(dy), the same elements dropped. `dbranch` is
/// memory for the result, used only with dropout; its extent may be zero otherwise, and dy is returned without a copy.
template <class Scalar>
Matrix<const Scalar> leave(const Pass& pass, Matrix<Scalar> dbranch, Matrix<const Scalar> dy,
                           std::uint64_t dropout_key);

/// The key of the random stream of one dropout site: "dropout.<layer>.<site>".
std::uint64_t dropout_stream(std::uint64_t seed, std::int64_t layer, const std::string& site);

}  // namespace kozero::model
