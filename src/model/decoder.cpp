// SPDX-FileCopyrightText: The KoZeRO authors
// SPDX-License-Identifier: Apache-2.0
// decoder.cpp: the embedding's lookups and gradients, and the decoder's forward, backward and decoding passes.
#include <algorithm>

#include <kozero/core/device.hpp>
#include <kozero/core/error.hpp>
#include <kozero/core/precision.hpp>
#include <kozero/model/layer.hpp>
#include <kozero/model/projection.hpp>
#include "kernels/launch/reduce.hpp"
#include "kernels/ops/dropout.hpp"
#include "kernels/ops/embedding.hpp"
#include "src/model/decoder.hpp"
#include "src/model/frozen_tensors.hpp"

namespace kozero::model {

template <class Scalar>
Embedding<Scalar>::Embedding(const Config& config, std::vector<VocabularyBlock> tokens,
                             std::optional<PositionTable> positions)
    : tokens_(std::move(tokens)),
      positions_(positions),
      sums_lookups_apart_(config.vocab_block > 0 && config.tie_embeddings),
      dropout_stream_(dropout_stream(config.seed, 0, "embedding")) {}

template <class Scalar>
template <class LookUp, class AddPositions>
void Embedding<Scalar>::read(ParameterAccess<Scalar>& access, const LookUp& look_up,
                             const AddPositions& add_positions) const {
  const int of_positions = positions_ ? positions_->unit : -1;
  for (const VocabularyBlock& block : tokens_) {
    const auto weights = access.acquire(block.unit);
    look_up(block.matrix.in(weights), block.first);
    if (block.unit == of_positions) add_positions(positions_->matrix.in(weights));
    access.release(block.unit);
  }
  if (!positions_ || of_positions == tokens_.back().unit) return;
  add_positions(positions_->matrix.in(access.acquire(of_positions)));
  access.release(of_positions);
}

template <class Scalar>
void Embedding<Scalar>::forward(ParameterAccess<Scalar>& access, const Pass& pass, Matrix<Scalar> x,
                                Vector<const Token> tokens) const {
  read(
      access,
      [&](Matrix<const Scalar> wte, std::int64_t first) {
        kernels::embedding_forward(pass.space, x, tokens, wte, first);
      },
      [&](Matrix<const Scalar> wpe) {
        if (!pass.documents.given()) return kernels::position_forward(pass.space, x, wpe, pass.positions);
        kernels::position_forward_at(pass.space, x, wpe, kernels::GivenPositions{pass.documents.positions});
      });
  if (pass.dropout > 0.0F) {
    kernels::dropout(pass.space, x, pass.sample_ids, pass.positions, pass.dropout, dropout_stream_);
  }
}

template <class Scalar>
void Embedding<Scalar>::decode(ParameterAccess<Scalar>& access, const Pass& pass, Matrix<Scalar> x,
                               Vector<const Token> tokens, const kernels::RowPositions& row_positions) const {
  read(
      access,
      [&](Matrix<const Scalar> wte, std::int64_t first) {
        kernels::embedding_forward(pass.space, x, tokens, wte, first);
      },
      [&](Matrix<const Scalar> wpe) { kernels::position_forward_at(pass.space, x, wpe, row_positions); });
}

template <class Scalar>
void Embedding<Scalar>::backward(ParameterAccess<Scalar>& access, const ParameterTable& table, const Pass& pass,
                                 Matrix<Scalar> dx, Vector<const Token> tokens) const {
  if (pass.dropout > 0.0F) {
    kernels::dropout(pass.space, dx, pass.sample_ids, pass.positions, pass.dropout, dropout_stream_);
  }
  const Matrix<const Scalar> arrived = dx;
  const auto add_positions = [&](const GradientViews& gradients) {
    if (!gradients.wants(positions_->matrix)) return;
    const Matrix<float> dwpe = gradients[positions_->matrix];
    if (!pass.documents.given()) return kernels::position_backward(pass.space, dwpe, arrived, pass.positions);
    kernels::position_backward(pass.space, dwpe, arrived, pass.positions, pass.documents);
  };
  const int of_positions = positions_ ? positions_->unit : -1;
  for (const VocabularyBlock& block : tokens_) {
    const GradientViews gradients(
        table, block.unit, sums_lookups_apart_ ? access.lookup_gradient(block.unit) : access.gradient(block.unit));
    if (gradients.wants(block.matrix)) {
      kernels::embedding_backward(pass.space, gradients[block.matrix], arrived, tokens, block.first);
    }
    if (block.unit == of_positions) add_positions(gradients);
    sums_lookups_apart_ ? access.lookup_gradient_ready(block.unit) : access.gradient_ready(block.unit);
  }
  if (!positions_ || of_positions == tokens_.back().unit) return;
  add_positions(GradientViews(table, of_positions, access.gradient(of_positions)));
  access.gradient_ready(of_positions);
}

#define KOZERO_INSTANTIATE(T) template class Embedding<T>;
KOZERO_FOR_STORED_TYPES(KOZERO_INSTANTIATE)
#undef KOZERO_INSTANTIATE

void open_unit_of_block(ParameterTable& table, const Config& config, std::int64_t layer) {
  if (layer % config.blocks_in_unit != 0) return;
  const std::int64_t last = std::min(layer + config.blocks_in_unit, config.layers) - 1;
  const std::string numbers = std::to_string(layer) + (last > layer ? "-" + std::to_string(last) : "");
  table.add_unit("block." + numbers, kBlockSlot);
}

template <class Scalar>
Decoder<Scalar>::Decoder(DecoderParts<Scalar> parts)
    : parts_(std::move(parts)),
      seq_(parts_.config.seq),
      held_((parts_.blocks.size() + blocks_in_unit() - 1) / blocks_in_unit()) {
  freeze_tensors(parts_.table, parts_.config);
  for (std::size_t layer = 0; layer < parts_.blocks.size(); layer += blocks_in_unit()) {
    adapters_of_.push_back(parts_.table.adapters_of(unit_of_block(layer)));
  }
}

template <class Scalar>
WeightViews<Scalar> Decoder<Scalar>::acquire_block(ParameterAccess<Scalar>& access, std::size_t layer) {
  WeightViews<Scalar>& weights = held_[layer / blocks_in_unit()];
  if (!weights.is_empty()) return weights;
  const int adapters = adapters_of_block(layer);
  const Vector<const Scalar> unit = access.acquire(unit_of_block(layer));
  weights = WeightViews<Scalar>(unit, adapters < 0 ? Vector<const Scalar>() : access.acquire(adapters));
  return weights;
}

template <class Scalar>
void Decoder<Scalar>::release_block(ParameterAccess<Scalar>& access, std::size_t layer) {
  held_[layer / blocks_in_unit()] = {};
  access.release(unit_of_block(layer));
  if (adapters_of_block(layer) >= 0) access.release(adapters_of_block(layer));
}

template <class Scalar>
void Decoder<Scalar>::reserve(MemoryLedger& ledger, std::int64_t micro_batch, Recompute recompute, std::int64_t seq) {
  const Config& config = parts_.config;
  require(seq <= config.seq, "Decoder: sequences longer than the model's positions");
  if (seq > 0) seq_ = seq;
  const std::int64_t num_rows = micro_batch * seq_;
  const std::size_t num_blocks = parts_.blocks.size();
  micro_batch_ = micro_batch;
  group_ = recompute.blocks == 0 ? num_blocks : std::min(static_cast<std::size_t>(recompute.blocks), num_blocks);

  std::int64_t scratch = std::max(parts_.head.scratch_bytes(num_rows), parts_.head.logits_scratch_bytes(1));
  states_.push_back(ledger.take<Scalar>(Memory::activations, "embedding", num_rows, config.dim));
  for (std::size_t layer = 0; layer < num_blocks; ++layer) {
    const Block<Scalar>& block = parts_.blocks[layer];
    for (std::size_t i = 0; i < block.size(); ++i) {
      const Sublayer<Scalar>* other = layer < group_ ? nullptr : parts_.blocks[layer % group_][i].get();
      block[i]->reserve(ledger, micro_batch, seq_, other, recompute.keeps_attention);
      scratch = std::max(scratch, block[i]->scratch_bytes(micro_batch, seq_));
      const bool ends_group = i + 1 == block.size() && ((layer + 1) % group_ == 0 || layer + 1 == num_blocks);
      const std::string label = "block." + std::to_string(layer) + " residual";
      states_.push_back(layer < group_ || ends_group
                            ? ledger.take<Scalar>(Memory::activations, label, num_rows, config.dim)
                            : states_[layer % group_ * block.size() + i + 1]);
    }
  }
  parts_.head.reserve(ledger, num_rows);
  dstate_ = ledger.take<Scalar>(Memory::activations, "residual gradient", num_rows, config.dim);
  scratch_ = ledger.take<std::byte>(Memory::workspace, "layer scratch", scratch);
  if (parts_.rotary) parts_.rotary->reserve(ledger, Device(), config.seq, config.head_dim);
}

template <class Scalar>
void Decoder<Scalar>::forward_backward(ParameterAccess<Scalar>& access, const Batch& batch, float loss_factor,
                                       double* loss) {
  Pass pass = pass_of(batch, parts_.config.dropout);
  pass.adapter_dropout = parts_.config.lora.dropout;
  const auto tokens = flat(batch.inputs);
  const auto dx = rows(dstate_, 0, pass.num_rows());

  forward(access, pass, tokens);
  const auto losses =
      parts_.head.forward_backward(access, parts_.table, pass, dx, last_state(pass), flat(batch.targets), loss_factor);
  kernels::put_sum_in_blocks(pass.space, losses, loss);
  backward(access, pass, dx, tokens);
}

template <class Scalar>
double Decoder<Scalar>::evaluate(ParameterAccess<Scalar>& access, const Batch& batch) {
  const Pass pass = pass_of(batch, 0.0F);
  forward(access, pass, flat(batch.inputs));
  const auto losses = parts_.head.evaluate(access, pass, last_state(pass), flat(batch.targets));
  return kernels::sum_in_blocks(pass.space, losses);
}

template <class Scalar>
void Decoder<Scalar>::next_token_logits(ParameterAccess<Scalar>& access, Matrix<const Token> inputs,
                                        std::int64_t num_tokens, Vector<float> logits) {
  constexpr std::int64_t kSpan = 128;
  const auto given = static_cast<std::int64_t>(inputs.extent(1));
  require(num_tokens >= 1 && num_tokens <= given && given <= seq_,
          "next_token_logits: " + std::to_string(num_tokens) + " tokens of " + std::to_string(given));
  // On a GPU, lengths are rounded up to a multiple of kSpan, since cuDNN needs about a second to plan a new length.
  // Causal attention keeps the padding from affecting the result.
  const std::int64_t seen = kHostIsDevice ? num_tokens : std::min(given, (num_tokens + kSpan - 1) / kSpan * kSpan);
  Batch prefix;
  prefix.inputs = Matrix<const Token>(inputs.data(), 1, static_cast<std::size_t>(seen));
  const Pass pass = pass_of(prefix, 0.0F);
  forward(access, pass, flat(prefix.inputs));
  parts_.head.logits(access, pass, as_matrix(logits, 1, parts_.config.vocab),
                     rows(last_state(pass), num_tokens - 1, 1));
}

template <class Scalar>
void Decoder<Scalar>::reserve_cache(MemoryLedger& ledger, const CacheExtents& extents) {
  const Config& config = parts_.config;
  require(extents.positions >= 1 && extents.positions <= config.seq,
          "reserve_cache: " + std::to_string(extents.positions) + " positions of " + std::to_string(config.seq));
  cached_rows_ = extents.rows;
  std::int64_t scratch = parts_.head.logits_scratch_bytes(std::min(extents.sequences, extents.rows));
  cached_sequences_ = extents.sequences;
  for (const auto& block : parts_.blocks) {
    for (const auto& sublayer : block) {
      sublayer->reserve_cache(ledger, extents);
      scratch = std::max(scratch, sublayer->decode_scratch_bytes(extents));
    }
  }
  for (auto& state : decode_states_) {
    state = ledger.take<Scalar>(Memory::activations, "new rows residual", extents.rows, config.dim);
  }
  decode_scratch_ = ledger.take<std::byte>(Memory::workspace, "scratch of new rows", scratch);
  if (parts_.rotary) parts_.rotary->reserve(ledger, Device(), config.seq, config.head_dim);
}

template <class Scalar>
void Decoder<Scalar>::decode(ParameterAccess<Scalar>& access, const TokenRows& given, Matrix<float> logits) {
  const std::int64_t num_rows = given.num_rows();
  const auto num_logits = static_cast<std::int64_t>(logits.extent(0));
  require(num_rows <= cached_rows_ && given.row_positions.num_rows() == num_rows && num_logits <= num_rows,
          "decode: " + std::to_string(num_rows) + " rows where " + std::to_string(cached_rows_) + " are reserved");
  require(num_logits <= cached_sequences_, "decode: more than one row of logits for each sequence");
  Pass pass;
  pass.batch = num_rows;
  pass.positions = 1;
  pass.scratch_memory = decode_scratch_;
  Matrix<Scalar> x = rows(decode_states_[0], 0, num_rows);
  Matrix<Scalar> y = rows(decode_states_[1], 0, num_rows);

  parts_.embedding.decode(access, pass, x, given.tokens, given.row_positions);
  for (std::size_t layer = 0; layer < parts_.blocks.size(); ++layer) {
    const auto weights = acquire_block(access, layer);
    for (const auto& sublayer : parts_.blocks[layer]) {
      sublayer->decode(pass, given.row_positions, y, x, weights);
      std::swap(x, y);
    }
    if (ends_unit(layer)) release_block(access, layer);
  }
  if (num_logits == 0) return;
  parts_.head.logits(access, pass, logits, rows(x, num_rows - num_logits, num_logits));
}

template <class Scalar>
void Decoder<Scalar>::forward(ParameterAccess<Scalar>& access, const Pass& pass, Vector<const Token> tokens) {
  parts_.embedding.forward(access, pass, state(0, pass), tokens);
  std::size_t index = 0;
  for (std::size_t layer = 0; layer < parts_.blocks.size(); ++layer) {
    const auto weights = acquire_block(access, layer);
    for (const auto& sublayer : parts_.blocks[layer]) {
      sublayer->forward(pass, state(index + 1, pass), state(index, pass), weights);
      ++index;
    }
    if (ends_unit(layer)) release_block(access, layer);
  }
}

template <class Scalar>
void Decoder<Scalar>::recompute(ParameterAccess<Scalar>& access, const Pass& pass, std::size_t first,
                                std::size_t last) {
  const Matrix<Scalar> unwanted(nullptr, 0, 0);
  for (std::size_t layer = first; layer < last; ++layer) {
    const Block<Scalar>& block = parts_.blocks[layer];
    const auto weights = acquire_block(access, layer);
    for (std::size_t i = 0; i < block.size(); ++i) {
      const std::size_t index = layer * block.size() + i;
      const bool ends_group = layer + 1 == last && i + 1 == block.size();
      block[i]->recompute(pass, ends_group ? unwanted : state(index + 1, pass), state(index, pass), weights);
    }
  }
}

template <class Scalar>
void Decoder<Scalar>::backward(ParameterAccess<Scalar>& access, const Pass& pass, Matrix<Scalar> dx,
                               Vector<const Token> tokens) {
  std::size_t index = states_.size() - 1;
  const std::size_t num_blocks = parts_.blocks.size();
  const int lowest = parts_.table.first_trainable_unit();
  std::optional<GradientViews> gradients;
  for (std::size_t layer = num_blocks; layer-- > 0 && unit_of_block(layer) >= lowest;) {
    const std::size_t first = layer / group_ * group_;
    const bool is_in_memory = first + group_ >= num_blocks;  // the last group keeps forward's activations
    if (!is_in_memory && layer + 1 == first + group_) recompute(access, pass, first, layer + 1);
    const auto weights = acquire_block(access, layer);
    const int unit = unit_of_block(layer);
    const int adapters = adapters_of_block(layer);
    if (ends_unit(layer)) {
      gradients.emplace(parts_.table, unit, access.gradient(unit),
                        adapters < 0 ? UnitGradient() : access.gradient(adapters));
    }
    for (auto sublayer = parts_.blocks[layer].rbegin(); sublayer != parts_.blocks[layer].rend(); ++sublayer) {
      --index;
      (*sublayer)->backward(pass, dx, *gradients, state(index, pass), weights);
    }
    if (!begins_unit(layer)) continue;
    release_block(access, layer);
    access.gradient_ready(unit);
    if (adapters >= 0) access.gradient_ready(adapters);
  }
  for (std::size_t layer = 0; layer < num_blocks; ++layer) {  // computed again for the blocks above
    if (begins_unit(layer) && is_held(layer)) release_block(access, layer);
  }
  if (lowest < unit_of_block(0)) parts_.embedding.backward(access, parts_.table, pass, dx, tokens);
}

template <class Scalar>
Pass Decoder<Scalar>::pass_of(const Batch& batch, float dropout) const {
  Pass pass;
  pass.batch = batch.num_sequences();
  pass.positions = pass.batch == 0 ? seq_ : static_cast<std::int64_t>(batch.inputs.extent(1));
  pass.sample_ids = batch.sample_ids;
  pass.documents = batch.documents;
  pass.dropout = dropout;
  pass.scratch_memory = scratch_;
  require(pass.batch <= micro_batch_ && pass.positions <= seq_,
          "Decoder: a batch of " + std::to_string(pass.batch) + " x " + std::to_string(pass.positions) +
              " tokens where " + std::to_string(micro_batch_) + " x " + std::to_string(seq_) + " are reserved");
  return pass;
}

template <class Scalar>
Matrix<Scalar> Decoder<Scalar>::state(std::size_t index, const Pass& pass) const {
  return rows(states_[index], 0, pass.num_rows());
}

template <class Scalar>
double Decoder<Scalar>::flops_per_token() const {
  const Config& config = parts_.config;
  const int lowest = parts_.table.first_trainable_unit();
  double operations = 0.0;
  for (const auto& row : parts_.table.rows()) {
    const bool only_looked_up = !row.overwritten;  // matrix products overwrite, lookups add
    const int beside = parts_.table.unit(row.unit).beside;
    const bool passes_back = (beside >= 0 ? beside : row.unit) >= lowest;
    const double products = 1.0 + (passes_back ? 1.0 : 0.0) + (row.trainable ? 1.0 : 0.0);
    if (row.shape.size() > 1 && !only_looked_up) operations += 2.0 * products * static_cast<double>(row.extent());
  }
  const auto attention = static_cast<double>(config.heads * config.head_dim * seq_);
  for (std::size_t layer = 0; layer < parts_.blocks.size(); ++layer) {
    operations += (unit_of_block(layer) >= lowest ? 6.0 : 2.0) * attention;
  }
  return operations;
}

#define KOZERO_INSTANTIATE(T) template class Decoder<T>;
KOZERO_FOR_STORED_TYPES(KOZERO_INSTANTIATE)

}  // namespace kozero::model
