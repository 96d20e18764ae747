// SPDX-FileCopyrightText: The KoZeRO authors
// SPDX-License-Identifier: Apache-2.0
#include <kozero/core/bfloat16.hpp>
#include <kozero/kernels/bias.hpp>
#include <kozero/kernels/matmul.hpp>
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
void Projection<Scalar>::forward(const Device& space, Matrix<Scalar> y, Matrix<const Scalar> x,
                                 Vector<const Scalar> weights) const {
  const Op op = orientation_ == Orientation::input_output ? Op::none : Op::transpose;
  if (bias_) {
    kernels::matmul(space, y, Op::none, x, op, weight_.in(weights), bias_->in(weights));
  } else {
    kernels::matmul(space, y, Op::none, x, op, weight_.in(weights), false);
  }
}

template <class Scalar>
void Projection<Scalar>::backward(const Device& space, Matrix<Scalar> dx, const UnitGradient& gradient,
                                  Matrix<const Scalar> dy, Matrix<const Scalar> x, Vector<const Scalar> weights,
                                  Vector<float> workspace) const {
  const auto dweight = weight_.in(gradient.values);
  if (orientation_ == Orientation::input_output) {
    kernels::matmul(space, dx, Op::none, dy, Op::transpose, weight_.in(weights), false);
    kernels::matmul(space, dweight, Op::transpose, x, Op::none, dy, !gradient.begins);
  } else {
    kernels::matmul(space, dx, Op::none, dy, Op::none, weight_.in(weights), false);
    kernels::matmul(space, dweight, Op::transpose, dy, Op::none, x, !gradient.begins);
  }
  if (bias_) kernels::bias_backward(space, bias_->in(gradient.values), dy, workspace);
}

template class Projection<float>;
template class Projection<Bfloat16>;

}  // namespace kozero::model
