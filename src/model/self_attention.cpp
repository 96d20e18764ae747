// SPDX-FileCopyrightText: The KoZeRO authors
// SPDX-License-Identifier: Apache-2.0
#include <algorithm>

#include <kozero/kernels/rope.hpp>
#include <kozero/kernels/row_blocks.hpp>
#include <kozero/model/residual_branch.hpp>
#include <kozero/model/rows.hpp>
#include <kozero/model/self_attention.hpp>

namespace kozero::model {

template <class Scalar>
SelfAttention<Scalar>::SelfAttention(const Config& config, std::int64_t layer, Norm<Scalar> norm,
                                     Projection<Scalar> qkv, Projection<Scalar> output,
                                     std::shared_ptr<const RotaryTables> rotary)
    : config_(config),
      layer_(layer),
      norm_(norm),
      qkv_(qkv),
      output_(output),
      rotary_(std::move(rotary)),
      probability_stream_(dropout_stream(config.seed, layer, "attention")),
      output_stream_(dropout_stream(config.seed, layer, "attention_output")) {}

template <class Scalar>
kernels::AttentionShape SelfAttention<Scalar>::shape(std::int64_t batch, std::int64_t positions) const {
  kernels::AttentionShape shape;
  shape.batch = batch;
  shape.positions = positions;
  shape.heads = config_.heads;
  shape.kv_heads = config_.kv_heads;
  shape.head_dim = config_.head_dim;
  return shape;
}

template <class Scalar>
kernels::AttentionShape SelfAttention<Scalar>::shape(const Pass& pass) const {
  kernels::AttentionShape of_pass = shape(pass.batch, pass.positions);
  of_pass.dropout = pass.dropout;
  of_pass.key = probability_stream_;
  of_pass.sample_ids = pass.sample_ids.data();
  return of_pass;
}

template <class Scalar>
void SelfAttention<Scalar>::reserve(MemoryLedger& ledger, std::int64_t batch, std::int64_t positions) {
  const std::int64_t num_rows = batch * positions;
  const std::string label = "block." + std::to_string(layer_) + " attention ";
  const auto take = [&](const char* name, std::int64_t columns) {
    return ledger.take<Scalar>(Memory::activations, label + name, num_rows, columns);
  };
  activations_.normed = take("norm", norm_.num_channels());
  activations_.statistics = norm_.reserve(ledger, label + "norm", num_rows);
  activations_.qkv = take("qkv", qkv_.num_outputs());
  activations_.heads = take("heads", output_.num_inputs());
  activations_.logsumexp =
      ledger.take<float>(Memory::activations, label + "logsumexp", batch * config_.heads, positions);
}

template <class Scalar>
auto SelfAttention<Scalar>::used_part(const Pass& pass) const -> Activations {
  const std::int64_t num_rows = pass.num_rows();
  const auto logsumexp = as_matrix(flat(activations_.logsumexp), pass.batch * config_.heads, pass.positions);
  return Activations{rows(activations_.normed, 0, num_rows), activations_.statistics,
                     rows(activations_.qkv, 0, num_rows), rows(activations_.heads, 0, num_rows), logsumexp};
}

template <class Scalar>
auto SelfAttention<Scalar>::carve(Scratch& scratch, const kernels::AttentionShape& shape) const -> Gradients {
  const std::int64_t num_rows = shape.batch * shape.positions;
  const std::int64_t widest = std::max(qkv_.num_outputs(), norm_.num_channels());
  Gradients part;
  part.attention = scratch.vector<float>(kernels::attention_workspace(shape));
  part.reduction = scratch.vector<float>(kernels::row_reduction_workspace(widest));
  part.dbranch = scratch.matrix<Scalar>(config_.dropout > 0.0F ? num_rows : 0, output_.num_outputs());
  part.dheads = scratch.matrix<Scalar>(num_rows, output_.num_inputs());
  part.dqkv = scratch.matrix<Scalar>(num_rows, qkv_.num_outputs());
  part.dnormed = scratch.matrix<Scalar>(num_rows, norm_.num_channels());
  return part;
}

template <class Scalar>
std::int64_t SelfAttention<Scalar>::scratch_bytes(std::int64_t batch, std::int64_t positions) const {
  Scratch plan;
  carve(plan, shape(batch, positions));
  return plan.bytes();
}

template <class Scalar>
void SelfAttention<Scalar>::forward(const Pass& pass, Matrix<Scalar> y, Matrix<const Scalar> x,
                                    Vector<const Scalar> weights) {
  const Activations a = used_part(pass);
  Scratch scratch = pass.scratch();
  const Vector<float> workspace = carve(scratch, shape(pass)).attention;

  norm_.forward(pass.space, a.normed, a.statistics, x, weights);
  qkv_.forward(pass.space, a.qkv, a.normed, weights);
  if (rotary_) {
    kernels::rope_forward(pass.space, a.qkv, config_.heads + config_.kv_heads, config_.head_dim,
                          rows(rotary_->cosines, 0, pass.positions), rows(rotary_->sines, 0, pass.positions));
  }
  kernels::attention_forward(pass.space, a.heads, a.logsumexp, a.qkv, shape(pass), workspace);
  output_.forward(pass.space, y, a.heads, weights);
  join<Scalar>(pass, y, x, output_stream_);
}

template <class Scalar>
void SelfAttention<Scalar>::backward(const Pass& pass, Matrix<Scalar> dx, Vector<float> gradient,
                                     Matrix<const Scalar> x, Vector<const Scalar> weights) {
  const Activations a = used_part(pass);
  Scratch scratch = pass.scratch();
  const Gradients d = carve(scratch, shape(pass));

  const Matrix<const Scalar> dbranch = leave<Scalar>(pass, d.dbranch, dx, output_stream_);
  output_.backward(pass.space, d.dheads, gradient, dbranch, a.heads, weights, d.reduction);
  kernels::attention_backward(pass.space, d.dqkv, d.dheads, a.heads, a.logsumexp, a.qkv, shape(pass), d.attention);
  if (rotary_) {
    kernels::rope_backward(pass.space, d.dqkv, config_.heads + config_.kv_heads, config_.head_dim,
                           rows(rotary_->cosines, 0, pass.positions), rows(rotary_->sines, 0, pass.positions));
  }
  qkv_.backward(pass.space, d.dnormed, gradient, d.dqkv, a.normed, weights, d.reduction);
  norm_.backward(pass.space, dx, gradient, d.dnormed, x, a.statistics, weights, d.reduction);
}

template class SelfAttention<float>;

}  // namespace kozero::model
