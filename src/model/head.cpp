// SPDX-FileCopyrightText: The KoZeRO authors
// SPDX-License-Identifier: Apache-2.0
#include <algorithm>

#include <kozero/core/precision.hpp>
#include <kozero/model/head.hpp>
#include <kozero/model/layer.hpp>
#include "kernels/launch/fill.hpp"
#include "kernels/launch/row_blocks.hpp"
#include "kernels/matmul/matmul.hpp"
#include "kernels/ops/cross_entropy.hpp"

namespace kozero::model {

using kernels::Op;

template <class Scalar>
void Head<Scalar>::reserve(MemoryLedger& ledger, std::int64_t num_rows) {
  normed_ = ledger.take<Scalar>(Memory::activations, "head norm", num_rows, norm_.num_channels());
  statistics_ = norm_.reserve(ledger, "head norm", num_rows);
  losses_ = ledger.take<float>(Memory::activations, "losses", num_rows);
}

template <class Scalar>
auto Head<Scalar>::take_gradients(Scratch& scratch, std::int64_t num_rows) const -> Gradients {
  Gradients part;
  part.reduction = scratch.vector<float>(kernels::row_reduction_workspace(norm_.num_channels()));
  part.logits = scratch.matrix<Scalar>(std::min(kChunkRows, num_rows), vocabulary_.padded_rows());
  part.dnormed = scratch.matrix<Scalar>(num_rows, norm_.num_channels());
  return part;
}

template <class Scalar>
std::int64_t Head<Scalar>::scratch_bytes(std::int64_t num_rows) const {
  Scratch plan;
  take_gradients(plan, num_rows);
  return plan.bytes();
}

template <class Scalar>
Vector<const float> Head<Scalar>::forward_backward(const Pass& pass, Matrix<Scalar> dx, const HeadGradients& gradients,
                                                   Matrix<const Scalar> x, Vector<const Token> targets, float scale,
                                                   const HeadUnits<const Scalar>& weights) {
  const std::int64_t num_rows = pass.num_rows();
  const auto vocabulary = vocabulary_.padded_in(weights.vocabulary);            // (V', C)
  const auto dvocabulary = vocabulary_.padded_in(gradients.vocabulary.values);  // (V', C)
  const auto normed = rows(normed_, 0, num_rows);
  Scratch scratch = pass.scratch();
  const Gradients d = take_gradients(scratch, num_rows);

  norm_.forward(pass.space, normed, statistics_, x, weights.head);
  std::int64_t first = 0;
  do {  // once without rows too: the product with nothing makes E's gradient zero
    const std::int64_t count = std::min(kChunkRows, num_rows - first);
    const auto logits = rows(d.logits, 0, count);
    const auto chunk = rows(normed, first, count);
    kernels::matmul(pass.space, logits, Op::none, chunk, Op::transpose, vocabulary, false);
    kernels::cross_entropy(pass.space, slice(losses_, first, count), logits, slice(targets, first, count),
                           vocabulary_.rows, scale);
    kernels::matmul(pass.space, rows(d.dnormed, first, count), Op::none, logits, Op::none, vocabulary, false);
    const bool adds = first > 0 || !gradients.vocabulary.begins;
    kernels::matmul(pass.space, dvocabulary, Op::transpose, logits, Op::none, chunk, adds);
    first += count;
  } while (first < num_rows);
  kernels::fill(pass.space, flat(dx), Scalar(0));
  norm_.backward(pass.space, dx, gradients.head.values, d.dnormed, x, statistics_, weights.head, d.reduction);
  return slice(losses_, 0, num_rows);
}

template <class Scalar>
Vector<const float> Head<Scalar>::evaluate(const Pass& pass, Matrix<const Scalar> x, Vector<const Token> targets,
                                           const HeadUnits<const Scalar>& weights) {
  const std::int64_t num_rows = pass.num_rows();
  const auto vocabulary = vocabulary_.padded_in(weights.vocabulary);
  const auto normed = rows(normed_, 0, num_rows);
  Scratch scratch = pass.scratch();
  const Gradients d = take_gradients(scratch, num_rows);

  norm_.forward(pass.space, normed, statistics_, x, weights.head);
  for (std::int64_t first = 0; first < num_rows; first += kChunkRows) {
    const std::int64_t count = std::min(kChunkRows, num_rows - first);
    const auto logits = rows(d.logits, 0, count);
    kernels::matmul(pass.space, logits, Op::none, rows(normed, first, count), Op::transpose, vocabulary, false);
    kernels::cross_entropy_forward(pass.space, slice(losses_, first, count), logits, slice(targets, first, count),
                                   vocabulary_.rows);
  }
  return slice(losses_, 0, num_rows);
}

template <class Scalar>
auto Head<Scalar>::take_normed(Scratch& scratch, std::int64_t num_rows) const -> Normed {
  Normed part;
  part.x = scratch.matrix<Scalar>(num_rows, norm_.num_channels());
  part.statistics = norm_.take_statistics(scratch, num_rows);
  return part;
}

template <class Scalar>
std::int64_t Head<Scalar>::logits_scratch_bytes(std::int64_t num_rows) const {
  Scratch plan;
  take_normed(plan, num_rows);
  return plan.bytes();
}

template <class Scalar>
void Head<Scalar>::logits(const Pass& pass, Matrix<float> out, Matrix<const Scalar> x,
                          const HeadUnits<const Scalar>& weights) const {
  Scratch scratch = pass.scratch();
  const Normed normed = take_normed(scratch, static_cast<std::int64_t>(x.extent(0)));
  norm_.forward(pass.space, normed.x, normed.statistics, x, weights.head);
  kernels::matmul(pass.space, out, Op::none, normed.x, Op::transpose, vocabulary_.in(weights.vocabulary), false);
}

#define KOZERO_INSTANTIATE(T) template class Head<T>;
KOZERO_FOR_STORED_TYPES(KOZERO_INSTANTIATE)

}  // namespace kozero::model
