// SPDX-FileCopyrightText: The KoZeRO authors
// SPDX-License-Identifier: Apache-2.0
#include <kozero/core/precision.hpp>
#include <kozero/model/projection.hpp>
#include <kozero/model/rows.hpp>

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
                                 Vector<const Scalar> weights) const {
  if (bias_) {
    kernels::matmul(space, y, Op::none, x, forwards(), weight_.in(weights), bias_->in(weights));
  } else {
    kernels::matmul(space, y, Op::none, x, forwards(), weight_.in(weights), false);
  }
}

template <class Scalar>
void Projection<Scalar>::forward_onto(const Device& space, Matrix<Scalar> y, Matrix<const Scalar> residual,
                                      Matrix<const Scalar> x, Vector<const Scalar> weights) const {
  const auto bias = bias_ ? bias_->in(weights) : Vector<const Scalar>();
  kernels::matmul_add<Device, Scalar>(space, y, x, forwards(), weight_.in(weights), bias, residual);
}

template <class Scalar>
void Projection<Scalar>::forward_gelu(const Device& space, Matrix<Scalar> y, Matrix<Scalar> active,
                                      Matrix<const Scalar> x, Vector<const Scalar> weights) const {
  require(bias_.has_value(), "Projection: forward_gelu without a bias");
  kernels::matmul_gelu<Device, Scalar>(space, y, active, x, forwards(), weight_.in(weights), bias_->in(weights));
}

template <class Scalar>
void Projection<Scalar>::to_input(const Device& space, Matrix<Scalar> dx, Matrix<const Scalar> dy,
                                  Vector<const Scalar> weights) const {
  kernels::matmul(space, dx, Op::none, dy, backwards(), weight_.in(weights), false);
}

template <class Scalar>
void Projection<Scalar>::to_input_of_gelu(const Device& space, Matrix<Scalar> dhidden, Matrix<const Scalar> dy,
                                          Matrix<const Scalar> hidden, Vector<const Scalar> weights) const {
  kernels::matmul_gelu_gradient<Device, Scalar>(space, dhidden, dy, backwards(), weight_.in(weights), hidden);
}

template <class Scalar>
void Projection<Scalar>::to_weights(const Device& space, const UnitGradient& gradient, Matrix<const Scalar> dy,
                                    Matrix<const Scalar> x, Vector<float> workspace) const {
  const auto dweight = weight_.in(gradient.values);
  const bool outputs_first = orientation_ == Orientation::output_input;
  const Matrix<const Scalar> a = outputs_first ? dy : x;
  const Matrix<const Scalar> b = outputs_first ? x : dy;
  if (bias_) {
    kernels::matmul_bias_gradient<Device, Scalar>(space, dweight, a, b, !gradient.begins,
                                                  outputs_first ? kernels::Operand::a : kernels::Operand::b,
                                                  bias_->in(gradient.values), workspace);
  } else {
    kernels::matmul(space, dweight, Op::transpose, a, Op::none, b, !gradient.begins);
  }
}

template <class Scalar>
void Projection<Scalar>::backward(const Device& space, Matrix<Scalar> dx, const UnitGradient& gradient,
                                  Matrix<const Scalar> dy, Matrix<const Scalar> x, Vector<const Scalar> weights,
                                  Vector<float> workspace) const {
  to_input(space, dx, dy, weights);
  to_weights(space, gradient, dy, x, workspace);
}

#define KOZERO_INSTANTIATE(T) template class Projection<T>;
KOZERO_FOR_STORED_TYPES(KOZERO_INSTANTIATE)

}  // namespace kozero::model
