// SPDX-FileCopyrightText: The KoZeRO authors
// SPDX-License-Identifier: Apache-2.0
// gpt2.cpp: GPT-2: its shape, its tensors with names and initial values, and the decoder made of its sublayers.
#include <cmath>
#include <optional>

#include <kozero/core/precision.hpp>
#include <kozero/model/self_attention.hpp>
#include "src/model/architectures.hpp"
#include "src/model/decoder.hpp"
#include "src/model/feed_forward.hpp"
#include "src/model/frozen_tensors.hpp"

namespace kozero::model {
namespace {

constexpr float kDeviation = 0.02F;

/// The bias of a linear map or a norm, unless the network has none.
std::optional<VectorRef> add_bias(ParameterTable& table, const std::string& name, const Config& config,
                                  std::int64_t extent) {
  if (!config.bias) return std::nullopt;
  return add_vector(table, name + ".bias", extent, Initial::zeros);
}

template <class Scalar>
Norm<Scalar> add_norm(ParameterTable& table, const std::string& name, const Config& config) {
  const auto gain = add_vector(table, name + ".weight", config.dim, Initial::ones);
  return Norm<Scalar>(NormKind::layer, config.norm_eps, gain, add_bias(table, name, config, config.dim));
}

template <class Scalar>
AdaptedProjection<Scalar> add_projection(ParameterTable& table, AdapterLayout& adapters, const std::string& name,
                                         const Config& config, std::int64_t inputs, std::int64_t outputs,
                                         float deviation) {
  const auto weight = add_matrix(table, name + ".weight", inputs, outputs, deviation);
  const auto bias = add_bias(table, name, config, outputs);
  return AdaptedProjection<Scalar>(Projection<Scalar>(Orientation::input_output, weight, bias),
                                   adapters.add(table, inputs, {{name, outputs}}));
}

/// The tensors of one block in their published order, and the two sublayers that use them.
template <class Scalar>
Block<Scalar> add_block(ParameterTable& table, AdapterLayout& adapters, const Config& config, std::int64_t layer) {
  const std::string prefix = "h." + std::to_string(layer);
  const float into_residual = kDeviation / std::sqrt(2.0F * static_cast<float>(config.layers));
  const std::int64_t dim = config.dim;
  open_unit_of_block(table, config, layer);
  const auto add_map = [&](const std::string& name, std::int64_t inputs, std::int64_t outputs, float deviation) {
    return add_projection<Scalar>(table, adapters, prefix + name, config, inputs, outputs, deviation);
  };

  const auto norm_1 = add_norm<Scalar>(table, prefix + ".ln_1", config);
  const auto qkv = add_map(".attn.c_attn", dim, 3 * dim, kDeviation);
  const auto heads = add_map(".attn.c_proj", dim, dim, into_residual);
  const auto norm_2 = add_norm<Scalar>(table, prefix + ".ln_2", config);
  const auto up = add_map(".mlp.c_fc", dim, config.ffn, kDeviation);
  const auto down = add_map(".mlp.c_proj", config.ffn, dim, into_residual);

  Block<Scalar> block;
  block.push_back(std::make_unique<SelfAttention<Scalar>>(config, layer, norm_1,
                                                          AttentionWeights<Scalar>{qkv, heads, std::nullopt}, nullptr));
  block.push_back(std::make_unique<FeedForward<Scalar>>(config, layer, Activation::gelu, norm_2, up, down));
  return block;
}

}  // namespace

void resolve_gpt2(Config& config) {
  if (config.kv_heads == 0) config.kv_heads = config.heads;
  accept(config.kv_heads == config.heads, "kv_heads", config.kv_heads,
         "model.heads = " + std::to_string(config.heads) + " under arch gpt2");
  accept(config.dim % config.heads == 0, "heads", config.heads,
         "a divisor of model.dim = " + std::to_string(config.dim));
  const std::int64_t head_dim = config.dim / config.heads;
  accept(config.head_dim == 0 || config.head_dim == head_dim, "head_dim", config.head_dim,
         "dim / heads = " + std::to_string(head_dim) + " under arch gpt2");
  config.head_dim = head_dim;
  if (config.ffn == 0) config.ffn = 4 * config.dim;
}

template <class Scalar>
std::unique_ptr<Model<Scalar>> make_gpt2(const Config& config) {
  ParameterTable table;
  AdapterLayout adapters(config);
  const bool tied = config.tie_embeddings;
  const bool in_blocks = config.vocab_block > 0;
  const auto add_tokens = [&](const std::string& name, VocabularyUse use, const std::string& unit) {
    return add_vocabulary(table, name, use, config.vocab, config.dim, config.vocab_block, unit, kDeviation);
  };
  if (!in_blocks) table.add_unit("embedding", kEmbeddingSlot);
  const auto wte = add_tokens("wte.weight", tied ? VocabularyUse::both : VocabularyUse::lookup, "embedding");
  const bool positions_apart = in_blocks || is_frozen(config, "wte.weight");
  const int of_positions = positions_apart ? table.add_unit("positions", kHeadSlot) : wte.front().unit;
  const auto wpe = add_lookup_table(table, "wpe.weight", config.seq, config.dim, kDeviation);

  std::vector<Block<Scalar>> blocks;
  for (std::int64_t layer = 0; layer < config.layers; ++layer) {
    blocks.push_back(add_block<Scalar>(table, adapters, config, layer));
  }

  const bool norm_apart = tied || in_blocks || is_frozen(config, "lm_head.weight");
  const int head = table.add_unit("head", norm_apart ? kHeadSlot : kEmbeddingSlot);
  const auto norm = add_norm<Scalar>(table, "ln_f", config);
  if (norm_apart && !tied && !in_blocks) table.add_unit("vocabulary", kEmbeddingSlot);
  const auto vocabulary = tied ? wte : add_tokens("lm_head.weight", VocabularyUse::head, "head");
  adapters.append_to(table);

  const Embedding<Scalar> embedding(config, wte, PositionTable{of_positions, wpe});
  return std::make_unique<Decoder<Scalar>>(DecoderParts<Scalar>{config, std::move(table), embedding, std::move(blocks),
                                                                Head<Scalar>(norm, head, vocabulary, in_blocks),
                                                                nullptr});
}

#define KOZERO_INSTANTIATE(T) template std::unique_ptr<Model<T>> make_gpt2<T>(const Config&);
KOZERO_FOR_STORED_TYPES(KOZERO_INSTANTIATE)

}  // namespace kozero::model
