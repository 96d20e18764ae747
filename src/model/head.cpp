// SPDX-FileCopyrightText: The KoZeRO authors
// SPDX-License-Identifier: Apache-2.0
// head.cpp: the last norm, the product with the vocabulary in chunks of rows, and the loss with its gradient.
#include <algorithm>

#include <kozero/core/precision.hpp>
#include <kozero/model/head.hpp>
#include <kozero/model/layer.hpp>
#include "kernels/launch/fill.hpp"
#include "kernels/launch/row_blocks.hpp"
#include "kernels/matmul/matmul.hpp"
#include "kernels/ops/cross_entropy.hpp"

namespace kozero::model {

using kernels::LogitBlock;
using kernels::Op;

template <class Scalar>
Head<Scalar>::Head(Norm<Scalar> norm, int unit, std::vector<VocabularyBlock> vocabulary, bool in_blocks)
    : norm_(norm), unit_(unit), vocabulary_(std::move(vocabulary)), in_blocks_(in_blocks) {}

template <class Scalar>
void Head<Scalar>::reserve(MemoryLedger& ledger, std::int64_t num_rows) {
  normed_ = ledger.take<Scalar>(Memory::activations, "head norm", num_rows, norm_.num_channels());
  statistics_ = norm_.reserve(ledger, "head norm", num_rows);
  losses_ = ledger.take<float>(Memory::activations, "losses", num_rows);
  if (in_blocks_) softmax_ = ledger.take<float>(Memory::activations, "softmax of rows", 3 * num_rows);
}

template <class Scalar>
std::int64_t Head<Scalar>::largest_block() const {
  std::int64_t largest = 0;
  for (const VocabularyBlock& block : vocabulary_) largest = std::max(largest, block.matrix.padded_rows());
  return largest;
}

template <class Scalar>
auto Head<Scalar>::take_gradients(Scratch& scratch, std::int64_t num_rows) const -> Gradients {
  Gradients part;
  part.reduction = scratch.vector<float>(kernels::row_reduction_workspace(norm_.num_channels()));
  part.logits = scratch.vector<Scalar>(std::min(kChunkRows, num_rows) * largest_block());
  part.dnormed = scratch.matrix<Scalar>(num_rows, norm_.num_channels());
  if constexpr (std::is_same_v<Scalar, float>) {
    part.sum = part.dnormed;
  } else if (in_blocks_) {
    part.sum = scratch.matrix<float>(num_rows, norm_.num_channels());
  }
  return part;
}

template <class Scalar>
std::int64_t Head<Scalar>::scratch_bytes(std::int64_t num_rows) const {
  Scratch plan;
  take_gradients(plan, num_rows);
  return plan.bytes();
}

template <class Scalar>
template <class Body>
void Head<Scalar>::for_each_chunk(const Pass& pass, const Body& body) {
  constexpr std::int64_t kFewest = 16;  // rows
  const std::int64_t num_rows = pass.num_rows();
  std::int64_t first = 0;
  do {
    const std::int64_t behind = num_rows - first - kChunkRows;
    const bool is_last_short = pass.documents.given() && behind > 0 && behind < kFewest;
    const Chunk chunk{first, std::min(is_last_short ? kChunkRows - kFewest : kChunkRows, num_rows - first)};
    body(chunk);
    first += chunk.count;
  } while (first < num_rows);
}

template <class Scalar>
WeightViews<Scalar> Head<Scalar>::acquire_vocabulary(ParameterAccess<Scalar>& access,
                                                     const WeightViews<Scalar>& of_norm) const {
  const int unit = vocabulary_.front().unit;
  return unit == unit_ ? of_norm : WeightViews<Scalar>(access.acquire(unit));
}

template <class Scalar>
void Head<Scalar>::release_vocabulary(ParameterAccess<Scalar>& access) const {
  const int unit = vocabulary_.front().unit;
  if (unit != unit_) access.release(unit);
}

template <class Scalar>
Vector<const float> Head<Scalar>::forward_backward(ParameterAccess<Scalar>& access, const ParameterTable& table,
                                                   const Pass& pass, Matrix<Scalar> dx, Matrix<const Scalar> x,
                                                   Vector<const Token> targets, float scale) {
  const std::int64_t num_rows = pass.num_rows();
  Scratch scratch = pass.scratch();
  const Gradients d = take_gradients(scratch, num_rows);

  const WeightViews<Scalar> weights(access.acquire(unit_));
  if (in_blocks_) {
    norm_.forward(pass.space, rows(normed_, 0, num_rows), statistics_, x, weights);
    walk_forward(access, pass, d, targets);
    walk_backward(access, table, pass, d, targets, scale);
  } else {
    const auto vocabulary = acquire_vocabulary(access, weights);
    norm_.forward(pass.space, rows(normed_, 0, num_rows), statistics_, x, weights);
    const int unit = vocabulary_.front().unit;
    backward_of_whole(pass, d, {table, unit, access.gradient(unit)}, targets, scale, vocabulary);
    release_vocabulary(access);
  }
  kernels::fill(pass.space, flat(dx), Scalar(0));
  norm_.backward(pass.space, dx, {table, unit_, access.gradient(unit_)}, d.dnormed, x, statistics_, weights,
                 d.reduction);
  access.release(unit_);
  access.gradient_ready(unit_);
  return slice(losses_, 0, num_rows);
}

template <class Scalar>
void Head<Scalar>::backward_of_whole(const Pass& pass, const Gradients& d, const GradientViews& gradients,
                                     Vector<const Token> targets, float scale, const WeightViews<Scalar>& weights) {
  const MatrixRef& matrix = vocabulary_.front().matrix;
  const auto vocabulary = weights.padded(matrix);  // (V', C)
  for_each_chunk(pass, [&](const Chunk& chunk) {
    const auto logits = as_matrix(d.logits, chunk.count, matrix.padded_rows());
    const auto normed = rows(normed_, chunk.first, chunk.count);
    const auto losses = slice(losses_, chunk.first, chunk.count);
    kernels::matmul(pass.space, logits, Op::none, normed, Op::transpose, vocabulary, false);
    kernels::cross_entropy(pass.space, losses, logits, slice(targets, chunk.first, chunk.count), matrix.rows, scale);
    kernels::matmul(pass.space, rows(d.dnormed, chunk.first, chunk.count), Op::none, logits, Op::none, vocabulary,
                    false);
    if (!gradients.wants(matrix)) return;
    const bool adds = chunk.first > 0 || !gradients.begins(matrix);
    kernels::matmul(pass.space, gradients.padded(matrix), Op::transpose, logits, Op::none, normed, adds);
  });
}

template <class Scalar>
kernels::SoftmaxOfRows Head<Scalar>::softmax_of(const Chunk& chunk) const {
  const auto all = static_cast<std::int64_t>(softmax_.extent(0)) / 3;
  const auto part = [&](std::int64_t index) { return slice(softmax_, index * all + chunk.first, chunk.count); };
  return {part(0), part(1), part(2)};
}

template <class Scalar>
void Head<Scalar>::walk_forward(ParameterAccess<Scalar>& access, const Pass& pass, const Gradients& d,
                                Vector<const Token> targets) {
  for (auto block = vocabulary_.rbegin(); block != vocabulary_.rend(); ++block) {
    const MatrixRef& matrix = block->matrix;
    const auto vocabulary = matrix.padded_in(access.acquire(block->unit));
    for_each_chunk(pass, [&](const Chunk& chunk) {
      const auto logits = as_matrix(d.logits, chunk.count, matrix.padded_rows());
      kernels::matmul(pass.space, logits, Op::none, rows(normed_, chunk.first, chunk.count), Op::transpose, vocabulary,
                      false);
      kernels::add_to_softmax(pass.space, softmax_of(chunk), logits, slice(targets, chunk.first, chunk.count),
                              LogitBlock{block->first, matrix.rows}, block == vocabulary_.rbegin());
    });
    access.release(block->unit);
  }
  kernels::put_losses(pass.space, slice(losses_, 0, pass.num_rows()), softmax_of({0, pass.num_rows()}), targets);
}

template <class Scalar>
void Head<Scalar>::walk_backward(ParameterAccess<Scalar>& access, const ParameterTable& table, const Pass& pass,
                                 const Gradients& d, Vector<const Token> targets, float scale) {
  for (const VocabularyBlock& block : vocabulary_) {
    const MatrixRef& matrix = block.matrix;
    const auto vocabulary = matrix.padded_in(access.acquire(block.unit));
    const GradientViews gradients(table, block.unit, access.gradient(block.unit));
    for_each_chunk(pass, [&](const Chunk& chunk) {
      const auto logits = as_matrix(d.logits, chunk.count, matrix.padded_rows());
      const auto normed = rows(normed_, chunk.first, chunk.count);
      kernels::matmul(pass.space, logits, Op::none, normed, Op::transpose, vocabulary, false);
      kernels::softmax_gradient(pass.space, logits, softmax_of(chunk), slice(targets, chunk.first, chunk.count),
                                LogitBlock{block.first, matrix.rows}, scale);
      kernels::matmul(pass.space, rows(d.sum, chunk.first, chunk.count), Op::none, logits, Op::none, vocabulary,
                      block.first > 0);
      if (!gradients.wants(matrix)) return;
      const bool adds = chunk.first > 0 || !gradients.begins(matrix);
      kernels::matmul(pass.space, gradients.padded(matrix), Op::transpose, logits, Op::none, normed, adds);
    });
    access.release(block.unit);
    access.gradient_ready(block.unit);
  }
  if constexpr (!std::is_same_v<Scalar, float>) kernels::convert(pass.space, flat(d.dnormed), flat(d.sum));
}

template <class Scalar>
Vector<const float> Head<Scalar>::evaluate(ParameterAccess<Scalar>& access, const Pass& pass, Matrix<const Scalar> x,
                                           Vector<const Token> targets) {
  const std::int64_t num_rows = pass.num_rows();
  Scratch scratch = pass.scratch();
  const Gradients d = take_gradients(scratch, num_rows);

  const WeightViews<Scalar> weights(access.acquire(unit_));
  norm_.forward(pass.space, rows(normed_, 0, num_rows), statistics_, x, weights);
  if (in_blocks_) {
    walk_forward(access, pass, d, targets);
  } else {
    const MatrixRef& matrix = vocabulary_.front().matrix;
    const auto vocabulary = acquire_vocabulary(access, weights).padded(matrix);
    for_each_chunk(pass, [&](const Chunk& chunk) {
      const auto logits = as_matrix(d.logits, chunk.count, matrix.padded_rows());
      kernels::matmul(pass.space, logits, Op::none, rows(normed_, chunk.first, chunk.count), Op::transpose, vocabulary,
                      false);
      kernels::cross_entropy_forward(pass.space, slice(losses_, chunk.first, chunk.count), logits,
                                     slice(targets, chunk.first, chunk.count), matrix.rows);
    });
    release_vocabulary(access);
  }
  access.release(unit_);
  return slice(losses_, 0, num_rows);
}

template <class Scalar>
auto Head<Scalar>::take_normed(Scratch& scratch, std::int64_t num_rows) const -> Normed {
  Normed part;
  part.x = scratch.matrix<Scalar>(num_rows, norm_.num_channels());
  part.statistics = norm_.take_statistics(scratch, num_rows);
  if (in_blocks_) part.logits = scratch.vector<float>(num_rows * largest_block());
  return part;
}

template <class Scalar>
std::int64_t Head<Scalar>::logits_scratch_bytes(std::int64_t num_rows) const {
  Scratch plan;
  take_normed(plan, num_rows);
  return plan.bytes();
}

template <class Scalar>
void Head<Scalar>::logits(ParameterAccess<Scalar>& access, const Pass& pass, Matrix<float> out,
                          Matrix<const Scalar> x) const {
  Scratch scratch = pass.scratch();
  const auto num_rows = static_cast<std::int64_t>(x.extent(0));
  const Normed normed = take_normed(scratch, num_rows);
  const WeightViews<Scalar> weights(access.acquire(unit_));
  norm_.forward(pass.space, normed.x, normed.statistics, x, weights);
  if (in_blocks_) {
    for (auto block = vocabulary_.rbegin(); block != vocabulary_.rend(); ++block) {
      const auto part = as_matrix(normed.logits, num_rows, block->matrix.rows);
      kernels::matmul(pass.space, part, Op::none, normed.x, Op::transpose,
                      block->matrix.in(access.acquire(block->unit)), false);
      kernels::put_columns<Device>(pass.space, out, block->first, part);
      access.release(block->unit);
    }
  } else {
    const auto vocabulary = acquire_vocabulary(access, weights)[vocabulary_.front().matrix];
    kernels::matmul(pass.space, out, Op::none, normed.x, Op::transpose, vocabulary, false);
    release_vocabulary(access);
  }
  access.release(unit_);
}

#define KOZERO_INSTANTIATE(T) template class Head<T>;
KOZERO_FOR_STORED_TYPES(KOZERO_INSTANTIATE)

}  // namespace kozero::model
