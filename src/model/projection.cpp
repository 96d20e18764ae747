// SPDX-FileCopyrightText: The KoZeRO authors
// SPDX-License-Identifier: Apache-2.0
// projection.cpp: matrix products of a projection, and the gradient of a branch with or without dropout.
#include <kozero/core/precision.hpp>
#include <kozero/core/random.hpp>
#include <kozero/model/layer.hpp>
#include <kozero/model/projection.hpp>
#include "kernels/ops/dropout.hpp"

namespace kozero::model {

using kernels::Op;

template <class Scalar>
std::int64_t Projection<Scalar>::num_inputs() const {
  return orientation_ == Orientation::input_output ? weight_.rows : weight_.columns;
}

template <class Scalar>
std::int64_t Projection<Scalar>::num_outputs() const {
  return orientation_ == Orientation::input_output ? weight_.columns : weight_.rows;
}

template <class Scalar>
Op Projection<Scalar>::forwards() const {
  return orientation_ == Orientation::input_output ? Op::none : Op::transpose;
}

template <class Scalar>
Op Projection<Scalar>::backwards() const {
  return orientation_ == Orientation::input_output ? Op::transpose : Op::none;
}

template <class Scalar>
void Projection<Scalar>::forward(const Device& space, Matrix<Scalar> y, Matrix<const Scalar> x,
                                 const WeightViews<Scalar>& weights) const {
  if (bias_) {
    kernels::matmul(space, y, Op::none, x, forwards(), weights[weight_], weights[*bias_]);
  } else {
    kernels::matmul(space, y, Op::none, x, forwards(), weights[weight_], false);
  }
}

template <class Scalar>
void Projection<Scalar>::forward_onto(const Device& space, Matrix<Scalar> y, Matrix<const Scalar> residual,
                                      Matrix<const Scalar> x, const WeightViews<Scalar>& weights) const {
  const auto bias = bias_ ? weights[*bias_] : Vector<const Scalar>();
  kernels::matmul_add<Device, Scalar>(space, y, x, forwards(), weights[weight_], bias, residual);
}

template <class Scalar>
void Projection<Scalar>::forward_gelu(const Device& space, Matrix<Scalar> y, Matrix<Scalar> active,
                                      Matrix<const Scalar> x, const WeightViews<Scalar>& weights) const {
  const auto bias = bias_ ? weights[*bias_] : Vector<const Scalar>();
  kernels::matmul_gelu<Device, Scalar>(space, y, active, x, forwards(), weights[weight_], bias);
}

template <class Scalar>
void Projection<Scalar>::backward_input(const Device& space, Matrix<Scalar> dx, Matrix<const Scalar> dy,
                                        const WeightViews<Scalar>& weights) const {
  kernels::matmul(space, dx, Op::none, dy, backwards(), weights[weight_], false);
}

template <class Scalar>
void Projection<Scalar>::backward_input_of_gelu(const Device& space, Matrix<Scalar> dhidden, Matrix<const Scalar> dy,
                                                Matrix<const Scalar> hidden, const WeightViews<Scalar>& weights) const {
  kernels::matmul_gelu_gradient<Device, Scalar>(space, dhidden, dy, backwards(), weights[weight_], hidden);
}

template <class Scalar>
void Projection<Scalar>::backward_weights(const Device& space, const GradientViews& gradients, Matrix<const Scalar> dy,
                                          Matrix<const Scalar> x, Vector<float> workspace) const {
  if (!gradients.wants(weight_) && !(bias_ && gradients.wants(*bias_))) return;
  const auto dweight = gradients[weight_];
  const bool outputs_first = orientation_ == Orientation::output_input;
  const Matrix<const Scalar> a = outputs_first ? dy : x;
  const Matrix<const Scalar> b = outputs_first ? x : dy;
  if (bias_) {
    kernels::matmul_bias_gradient<Device, Scalar>(space, dweight, a, b, !gradients.begins(weight_),
                                                  outputs_first ? kernels::Operand::a : kernels::Operand::b,
                                                  gradients[*bias_], workspace);
  } else {
    kernels::matmul(space, dweight, Op::transpose, a, Op::none, b, !gradients.begins(weight_));
  }
}

template <class Scalar>
void Projection<Scalar>::backward(const Device& space, Matrix<Scalar> dx, const GradientViews& gradients,
                                  Matrix<const Scalar> dy, Matrix<const Scalar> x, const WeightViews<Scalar>& weights,
                                  Vector<float> workspace) const {
  backward_input(space, dx, dy, weights);
  backward_weights(space, gradients, dy, x, workspace);
}

#define KOZERO_INSTANTIATE(T) template class Projection<T>;
KOZERO_FOR_STORED_TYPES(KOZERO_INSTANTIATE)
#undef KOZERO_INSTANTIATE

template <class Scalar>
Matrix<const Scalar> leave(const Pass& pass, Matrix<Scalar> dbranch, Matrix<const Scalar> dy,
                           std::uint64_t dropout_key) {
  if (pass.dropout == 0.0F) return dy;
  Kokkos::deep_copy(pass.space, dbranch, dy);
  kernels::dropout(pass.space, dbranch, pass.sample_ids, pass.positions, pass.dropout, dropout_key);
  return dbranch;
}

std::uint64_t dropout_stream(std::uint64_t seed, std::int64_t layer, const std::string& site) {
  return stream_key(seed, "dropout." + std::to_string(layer) + "." + site);
}

#define KOZERO_INSTANTIATE(T) template Matrix<const T> leave<T>(const Pass&, Matrix<T>, Matrix<const T>, std::uint64_t);
KOZERO_FOR_STORED_TYPES(KOZERO_INSTANTIATE)

}  // namespace kozero::model
