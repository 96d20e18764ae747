// SPDX-FileCopyrightText: The KoZeRO authors
// SPDX-License-Identifier: Apache-2.0
// feed_forward.cpp: the MLP of a block, GELU for GPT-2 and SwiGLU for Llama and Qwen, forward, backward and decoding.
#include <algorithm>

#include <kozero/core/precision.hpp>
#include <kozero/model/layer.hpp>
#include "kernels/launch/row_blocks.hpp"
#include "kernels/ops/swiglu.hpp"
#include "src/model/feed_forward.hpp"

namespace kozero::model {

template <class Scalar>
FeedForward<Scalar>::FeedForward(const Config& config, std::int64_t layer, Activation activation, Norm<Scalar> norm,
                                 AdaptedProjection<Scalar> up, AdaptedProjection<Scalar> down)
    : dropout_(config.dropout),
      layer_(layer),
      activation_(activation),
      norm_(norm),
      up_(std::move(up)),
      down_(std::move(down)),
      drops_(config.lora.dropout > 0.0F),
      output_stream_(dropout_stream(config.seed, layer, "mlp_output")) {}

template <class Scalar>
void FeedForward<Scalar>::reserve(MemoryLedger& ledger, std::int64_t batch, std::int64_t positions,
                                  const Sublayer<Scalar>* other, bool /*keeps_attention*/) {
  if (other != nullptr) {
    activations_ = dynamic_cast<const FeedForward&>(*other).activations_;
    return;
  }
  const std::int64_t num_rows = batch * positions;
  const std::string label = "block." + std::to_string(layer_) + " mlp ";
  const auto take = [&](const char* name, std::int64_t columns) {
    return ledger.take<Scalar>(Memory::activations, label + name, num_rows, columns);
  };
  activations_.normed = take("norm", norm_.num_channels());
  activations_.statistics = norm_.reserve(ledger, label + "norm", num_rows);
  activations_.hidden = take("hidden", up_.num_outputs());
  activations_.active = take("active", down_.num_inputs());
}

template <class Scalar>
auto FeedForward<Scalar>::used_part(std::int64_t num_rows) const -> Activations {
  return Activations{rows(activations_.normed, 0, num_rows), activations_.statistics,
                     rows(activations_.hidden, 0, num_rows), rows(activations_.active, 0, num_rows)};
}

template <class Scalar>
auto FeedForward<Scalar>::take_gradients(Scratch& scratch, std::int64_t num_rows) const -> Gradients {
  const std::int64_t widest = std::max(up_.num_outputs(), norm_.num_channels());
  Gradients part;
  part.reduction = scratch.vector<float>(kernels::row_reduction_workspace(widest));
  part.dbranch = scratch.matrix<Scalar>(dropout_ > 0.0F ? num_rows : 0, down_.num_outputs());
  const bool gated = activation_ != Activation::gelu;
  part.dactive = scratch.matrix<Scalar>(gated ? num_rows : 0, down_.num_inputs());
  part.dhidden = scratch.matrix<Scalar>(num_rows, up_.num_outputs());
  part.dnormed = scratch.matrix<Scalar>(num_rows, norm_.num_channels());
  part.adapters = take_adapters(scratch, num_rows);
  return part;
}

template <class Scalar>
auto FeedForward<Scalar>::take_adapters(Scratch& scratch, std::int64_t num_rows) const -> AdapterScratch<Scalar> {
  return take_adapter_scratch<Scalar>(scratch, num_rows, drops_, {&up_, &down_});
}

template <class Scalar>
std::int64_t FeedForward<Scalar>::scratch_bytes(std::int64_t batch, std::int64_t positions) const {
  Scratch plan;
  take_gradients(plan, batch * positions);
  return plan.bytes();
}

template <class Scalar>
void FeedForward<Scalar>::forward(const Pass& pass, Matrix<Scalar> y, Matrix<const Scalar> x,
                                  const WeightViews<Scalar>& weights) {
  Scratch scratch = pass.scratch();
  run(pass, used_part(pass.num_rows()), take_adapters(scratch, pass.num_rows()), y, x, weights);
}

template <class Scalar>
auto FeedForward<Scalar>::take_activations(Scratch& scratch, std::int64_t num_rows) const -> Activations {
  Activations part;
  part.normed = scratch.matrix<Scalar>(num_rows, norm_.num_channels());
  part.statistics = norm_.take_statistics(scratch, num_rows);
  part.hidden = scratch.matrix<Scalar>(num_rows, up_.num_outputs());
  part.active = scratch.matrix<Scalar>(num_rows, down_.num_inputs());
  return part;
}

template <class Scalar>
std::int64_t FeedForward<Scalar>::decode_scratch_bytes(const CacheExtents& extents) const {
  Scratch plan;
  take_activations(plan, extents.rows);
  take_adapters(plan, extents.rows);
  return plan.bytes();
}

template <class Scalar>
void FeedForward<Scalar>::decode(const Pass& pass, const kernels::RowPositions& /*row_positions*/, Matrix<Scalar> y,
                                 Matrix<const Scalar> x, const WeightViews<Scalar>& weights) {
  Scratch scratch = pass.scratch();
  const Activations a = take_activations(scratch, pass.num_rows());
  run(pass, a, take_adapters(scratch, pass.num_rows()), y, x, weights);
}

template <class Scalar>
void FeedForward<Scalar>::run(const Pass& pass, const Activations& a, const AdapterScratch<Scalar>& adapters,
                              Matrix<Scalar> y, Matrix<const Scalar> x, const WeightViews<Scalar>& weights) const {
  norm_.forward(pass.space, a.normed, a.statistics, x, weights);
  if (activation_ == Activation::gelu) {
    up_.forward_gelu(pass, adapters, a.hidden, a.active, a.normed, weights);
  } else {
    up_.forward(pass, adapters, a.hidden, a.normed, weights);
    kernels::swiglu_forward(pass.space, a.active, a.hidden);
  }
  if (y.extent(0) > 0) down_.join(pass, adapters, y, x, a.active, weights, output_stream_);
}

template <class Scalar>
void FeedForward<Scalar>::backward(const Pass& pass, Matrix<Scalar> dx, const GradientViews& gradients,
                                   Matrix<const Scalar> x, const WeightViews<Scalar>& weights) {
  const Activations a = used_part(pass.num_rows());
  Scratch scratch = pass.scratch();
  const Gradients d = take_gradients(scratch, pass.num_rows());

  const Matrix<const Scalar> dbranch = leave<Scalar>(pass, d.dbranch, dx, output_stream_);
  down_.backward_weights(pass, d.adapters, gradients, dbranch, a.active, weights, d.reduction);
  if (activation_ == Activation::gelu) {
    down_.backward_input_of_gelu(pass, d.adapters, d.dhidden, dbranch, a.hidden, weights);
  } else {
    down_.backward_input(pass, d.adapters, d.dactive, dbranch, weights);
    kernels::swiglu_backward(pass.space, d.dhidden, d.dactive, a.hidden);
  }
  up_.backward(pass, d.adapters, d.dnormed, gradients, d.dhidden, a.normed, weights, d.reduction);
  norm_.backward(pass.space, dx, gradients, d.dnormed, x, a.statistics, weights, d.reduction);
}

#define KOZERO_INSTANTIATE(T) template class FeedForward<T>;
KOZERO_FOR_STORED_TYPES(KOZERO_INSTANTIATE)

}  // namespace kozero::model
