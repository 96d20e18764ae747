// SPDX-FileCopyrightText: The KoZeRO authors
// SPDX-License-Identifier: Apache-2.0
// self_attention.cpp: RoPE's tables; forward, backward and decoding with a cache of the attention branch.
#include <algorithm>

#include <kozero/core/precision.hpp>
#include <kozero/model/layer.hpp>
#include <kozero/model/self_attention.hpp>
#include "kernels/launch/row_blocks.hpp"
#include "kernels/ops/rope.hpp"

namespace kozero::model {

void RotaryTables::reserve(MemoryLedger& ledger, const Device& space, std::int64_t positions, std::int64_t head_dim) {
  cosines = ledger.take<float>(Memory::workspace, "rotary cosines", positions, head_dim / 2);
  sines = ledger.take<float>(Memory::workspace, "rotary sines", positions, head_dim / 2);
  const kernels::RopeFrequencies frequencies{.theta = static_cast<double>(theta),
                                             .factor = static_cast<double>(scaling.factor),
                                             .low_freq_factor = static_cast<double>(scaling.low_freq_factor),
                                             .high_freq_factor = static_cast<double>(scaling.high_freq_factor),
                                             .original_seq = static_cast<double>(scaling.original_seq)};
  if (!ledger.plans_only()) kernels::rope_tables(space, cosines, sines, frequencies);
}

kernels::AttentionShape attention_shape(const Config& config, std::int64_t batch, std::int64_t positions) {
  kernels::AttentionShape shape;
  shape.batch = batch;
  shape.positions = positions;
  shape.heads = config.heads;
  shape.kv_heads = config.kv_heads;
  shape.head_dim = config.head_dim;
  return shape;
}

template <class Scalar>
SelfAttention<Scalar>::SelfAttention(const Config& config, std::int64_t layer, Norm<Scalar> norm,
                                     const AttentionWeights<Scalar>& weights,
                                     std::shared_ptr<const RotaryTables> rotary)
    : config_(config),
      layer_(layer),
      norm_(norm),
      qkv_(weights.qkv),
      output_(weights.output),
      qk_norm_(weights.qk_norm),
      rotary_(std::move(rotary)),
      probability_stream_(dropout_stream(config.seed, layer, "attention")),
      output_stream_(dropout_stream(config.seed, layer, "attention_output")) {}

template <class Scalar>
kernels::AttentionShape SelfAttention<Scalar>::shape(const Pass& pass) const {
  kernels::AttentionShape of_pass = attention_shape(config_, pass.batch, pass.positions);
  of_pass.dropout = pass.dropout;
  of_pass.key = probability_stream_;
  of_pass.sample_ids = pass.sample_ids.data();
  of_pass.documents = pass.documents;
  return of_pass;
}

template <class Scalar>
void SelfAttention<Scalar>::reserve(MemoryLedger& ledger, std::int64_t batch, std::int64_t positions,
                                    const Sublayer<Scalar>* other, bool keeps_attention) {
  const std::int64_t num_rows = batch * positions;
  const std::string label = "block." + std::to_string(layer_) + " attention ";
  const auto take = [&](const char* name, std::int64_t columns) {
    return ledger.take<Scalar>(Memory::activations, label + name, num_rows, columns);
  };
  keeps_result_ = keeps_attention;
  if (other != nullptr) {
    activations_ = dynamic_cast<const SelfAttention&>(*other).activations_;
  } else {
    activations_.normed = take("norm", norm_.num_channels());
    activations_.statistics = norm_.reserve(ledger, label + "norm", num_rows);
    activations_.qkv = take("qkv", qkv_.num_outputs());
  }
  if (other != nullptr && !keeps_attention) return;
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
auto SelfAttention<Scalar>::take_temporaries(Scratch& scratch, const kernels::AttentionShape& shape) const
    -> Temporaries {
  const std::int64_t num_rows = shape.batch * shape.positions;
  const std::int64_t widest = std::max(qkv_.num_outputs(), norm_.num_channels());
  Temporaries part;
  part.attention = scratch.vector<float>(kernels::attention_workspace<Scalar>(shape));
  if (qk_norm_) {
    part.normed_qkv = scratch.matrix<Scalar>(num_rows, qkv_.num_outputs());
    part.qk_rstd = scratch.matrix<float>(num_rows, qk_norm_->num_heads());
  }
  part.reduction = scratch.vector<float>(kernels::row_reduction_workspace(widest));
  part.dbranch = scratch.matrix<Scalar>(config_.dropout > 0.0F ? num_rows : 0, output_.num_outputs());
  part.dheads = scratch.matrix<Scalar>(num_rows, output_.num_inputs());
  part.dqkv = scratch.matrix<Scalar>(num_rows, qkv_.num_outputs());
  part.dnormed = scratch.matrix<Scalar>(num_rows, norm_.num_channels());
  part.adapters = take_adapter_scratch<Scalar>(scratch, num_rows, config_.lora.dropout > 0.0F, {&qkv_, &output_});
  return part;
}

template <class Scalar>
std::int64_t SelfAttention<Scalar>::scratch_bytes(std::int64_t batch, std::int64_t positions) const {
  Scratch plan;
  take_temporaries(plan, attention_shape(config_, batch, positions));
  return plan.bytes();
}

/// What attention reads: qkv with q and k normed and turned. Without a QkNorm it is a.qkv itself, turned in place.
template <class Scalar>
Matrix<const Scalar> SelfAttention<Scalar>::turned_qkv(const Pass& pass, const Activations& a, const Temporaries& t,
                                                       const WeightViews<Scalar>& weights) const {
  const Matrix<Scalar> qkv = qk_norm_ ? t.normed_qkv : a.qkv;
  if (qk_norm_) qk_norm_->forward(pass.space, qkv, t.qk_rstd, a.qkv, weights);
  rotate(pass, qkv);
  return qkv;
}

template <class Scalar>
void SelfAttention<Scalar>::rotate(const Pass& pass, Matrix<Scalar> qkv) const {
  if (!rotary_) return;
  const std::int64_t heads = config_.heads + config_.kv_heads;
  if (pass.documents.given()) {
    const kernels::GivenPositions positions{pass.documents.positions};
    return kernels::rope_forward_at(pass.space, qkv, heads, positions, rotary_->cosines, rotary_->sines);
  }
  kernels::rope_forward(pass.space, qkv, heads, config_.head_dim, rows(rotary_->cosines, 0, pass.positions),
                        rows(rotary_->sines, 0, pass.positions));
}

template <class Scalar>
void SelfAttention<Scalar>::rotate_back(const Pass& pass, Matrix<Scalar> dqkv) const {
  if (!rotary_) return;
  const std::int64_t heads = config_.heads + config_.kv_heads;
  if (pass.documents.given()) {
    const kernels::GivenPositions positions{pass.documents.positions};
    return kernels::rope_backward_at(pass.space, dqkv, heads, positions, rotary_->cosines, rotary_->sines);
  }
  kernels::rope_backward(pass.space, dqkv, heads, config_.head_dim, rows(rotary_->cosines, 0, pass.positions),
                         rows(rotary_->sines, 0, pass.positions));
}

template <class Scalar>
void SelfAttention<Scalar>::forward(const Pass& pass, Matrix<Scalar> y, Matrix<const Scalar> x,
                                    const WeightViews<Scalar>& weights) {
  run(pass, y, x, weights, true);
}

template <class Scalar>
void SelfAttention<Scalar>::recompute(const Pass& pass, Matrix<Scalar> y, Matrix<const Scalar> x,
                                      const WeightViews<Scalar>& weights) {
  run(pass, y, x, weights, !keeps_result_);
}

template <class Scalar>
void SelfAttention<Scalar>::run(const Pass& pass, Matrix<Scalar> y, Matrix<const Scalar> x,
                                const WeightViews<Scalar>& weights, bool attends) const {
  const Activations a = used_part(pass);
  Scratch scratch = pass.scratch();
  const Temporaries t = take_temporaries(scratch, shape(pass));

  norm_.forward(pass.space, a.normed, a.statistics, x, weights);
  qkv_.forward(pass, t.adapters, a.qkv, a.normed, weights);
  if (attends || !qk_norm_) {  // which turns qkv in place
    const Matrix<const Scalar> qkv = turned_qkv(pass, a, t, weights);
    if (attends) kernels::attention_forward(pass.space, a.heads, a.logsumexp, qkv, shape(pass), t.attention);
  }
  if (y.extent(0) > 0) output_.join(pass, t.adapters, y, x, a.heads, weights, output_stream_);
}

template <class Scalar>
void SelfAttention<Scalar>::reserve_cache(MemoryLedger& ledger, const CacheExtents& extents) {
  cache_ = {extents.sequences, kernels::CacheShape::whole_tiles(extents.positions), config_.kv_heads, config_.head_dim};
  const std::string label = "block." + std::to_string(layer_) + " cached ";
  cached_heads_.keys = ledger.take<Scalar>(Memory::activations, label + "keys", cache_.extent());
  cached_heads_.values = ledger.take<Scalar>(Memory::activations, label + "values", cache_.extent());
}

template <class Scalar>
auto SelfAttention<Scalar>::take_decoding(Scratch& scratch, std::int64_t num_rows) const -> Decoding {
  Decoding part;
  part.normed = scratch.matrix<Scalar>(num_rows, norm_.num_channels());
  part.statistics = norm_.take_statistics(scratch, num_rows);
  part.qkv = scratch.matrix<Scalar>(num_rows, qkv_.num_outputs());
  if (qk_norm_) {
    part.normed_qkv = scratch.matrix<Scalar>(num_rows, qkv_.num_outputs());
    part.qk_rstd = scratch.matrix<float>(num_rows, qk_norm_->num_heads());
  }
  part.heads = scratch.matrix<Scalar>(num_rows, output_.num_inputs());
  part.attention = scratch.vector<float>(kernels::cached_attention_workspace(cache_, num_rows, config_.heads));
  part.adapters = take_adapter_scratch<Scalar>(scratch, num_rows, false, {&qkv_, &output_});
  return part;
}

/// reserve_cache comes before.
template <class Scalar>
std::int64_t SelfAttention<Scalar>::decode_scratch_bytes(const CacheExtents& extents) const {
  Scratch plan;
  take_decoding(plan, extents.rows);
  return plan.bytes();
}

template <class Scalar>
void SelfAttention<Scalar>::decode(const Pass& pass, const kernels::RowPositions& row_positions, Matrix<Scalar> y,
                                   Matrix<const Scalar> x, const WeightViews<Scalar>& weights) {
  Scratch scratch = pass.scratch();
  const Decoding d = take_decoding(scratch, pass.num_rows());
  const kernels::AttentionShape rows_alone = attention_shape(config_, pass.num_rows(), 1);

  norm_.forward(pass.space, d.normed, d.statistics, x, weights);
  qkv_.forward(pass, d.adapters, d.qkv, d.normed, weights);
  const Matrix<Scalar> qkv = qk_norm_ ? d.normed_qkv : d.qkv;
  if (qk_norm_) qk_norm_->forward(pass.space, qkv, d.qk_rstd, d.qkv, weights);
  if (rotary_) {
    kernels::rope_forward_at(pass.space, qkv, config_.heads + config_.kv_heads, row_positions, rotary_->cosines,
                             rotary_->sines);
  }
  kernels::append_to_cache<Device, Scalar>(pass.space, cached_heads_, cache_, qkv, row_positions, rows_alone);
  kernels::attention_cached<Device, Scalar>(pass.space, d.heads, qkv, cached_heads_, cache_, row_positions, rows_alone,
                                            d.attention);
  output_.join(pass, d.adapters, y, x, d.heads, weights, output_stream_);
}

template <class Scalar>
void SelfAttention<Scalar>::backward(const Pass& pass, Matrix<Scalar> dx, const GradientViews& gradients,
                                     Matrix<const Scalar> x, const WeightViews<Scalar>& weights) {
  const Activations a = used_part(pass);
  Scratch scratch = pass.scratch();
  const Temporaries t = take_temporaries(scratch, shape(pass));

  const Matrix<const Scalar> dbranch = leave<Scalar>(pass, t.dbranch, dx, output_stream_);
  output_.backward(pass, t.adapters, t.dheads, gradients, dbranch, a.heads, weights, t.reduction);
  const Matrix<const Scalar> qkv = qk_norm_ ? turned_qkv(pass, a, t, weights) : a.qkv;
  kernels::attention_backward(pass.space, t.dqkv, t.dheads, a.heads, a.logsumexp, qkv, shape(pass), t.attention);
  rotate_back(pass, t.dqkv);
  if (qk_norm_) qk_norm_->backward(pass.space, t.dqkv, gradients, a.qkv, t.qk_rstd, weights, t.reduction);
  qkv_.backward(pass, t.adapters, t.dnormed, gradients, t.dqkv, a.normed, weights, t.reduction);
  norm_.backward(pass.space, dx, gradients, t.dnormed, x, a.statistics, weights, t.reduction);
}

#define KOZERO_INSTANTIATE(T) template class SelfAttention<T>;
KOZERO_FOR_STORED_TYPES(KOZERO_INSTANTIATE)

}  // namespace kozero::model
