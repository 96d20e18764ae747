// SPDX-FileCopyrightText: The KoZeRO authors
// SPDX-License-Identifier: Apache-2.0
// llama.cpp: Llama's network, and Qwen2 and Qwen3 as Llama with biases on q, k, v or with QK norm.
#include <kozero/core/precision.hpp>
#include <kozero/model/self_attention.hpp>
#include "src/model/architectures.hpp"
#include "src/model/decoder.hpp"
#include "src/model/feed_forward.hpp"
#include "src/model/frozen_tensors.hpp"

namespace kozero::model {
namespace {

template <class Scalar>
Norm<Scalar> add_norm(ParameterTable& table, const std::string& name, const Config& config) {
  return Norm<Scalar>(NormKind::root_mean_square, config.norm_eps,
                      add_vector(table, name + ".weight", config.dim, Initial::ones));
}

/// The tables to which a block adds its tensors.
struct Tables {
  ParameterTable& base;
  AdapterLayout& adapters;
};

/// The projection whose outputs are those of `maps`, one behind the other.
template <class Scalar>
AdaptedProjection<Scalar> projection(const Tables& tables, const std::vector<LinearMap>& maps, const MatrixRef& weight,
                                     std::optional<VectorRef> bias = std::nullopt) {
  return AdaptedProjection<Scalar>(Projection<Scalar>(Orientation::output_input, weight, bias),
                                   tables.adapters.add(tables.base, weight.columns, maps));
}

/// q, k and v, each a tensor of its own, as one matrix and, with biases, one vector.
template <class Scalar>
AdaptedProjection<Scalar> add_qkv(const Tables& tables, const Config& config, const std::string& attention) {
  ParameterTable& table = tables.base;
  const std::int64_t heads_dim = config.heads * config.head_dim;
  const std::int64_t kv_dim = config.kv_heads * config.head_dim;
  const auto q = add_matrix(table, attention + ".q_proj.weight", heads_dim, config.dim);
  const auto qk = add_matrix_below(table, q, attention + ".k_proj.weight", kv_dim);
  const auto qkv = add_matrix_below(table, qk, attention + ".v_proj.weight", kv_dim);
  const std::vector<LinearMap> maps = {
      {attention + ".q_proj", heads_dim}, {attention + ".k_proj", kv_dim}, {attention + ".v_proj", kv_dim}};
  if (!config.qkv_bias) return projection<Scalar>(tables, maps, qkv);

  const auto q_bias = add_vector(table, attention + ".q_proj.bias", heads_dim, Initial::zeros);
  const auto qk_bias = add_vector_behind(table, q_bias, attention + ".k_proj.bias", kv_dim, Initial::zeros);
  const auto qkv_bias = add_vector_behind(table, qk_bias, attention + ".v_proj.bias", kv_dim, Initial::zeros);
  return projection<Scalar>(tables, maps, qkv, qkv_bias);
}

template <class Scalar>
std::optional<QkNorm<Scalar>> add_qk_norm(ParameterTable& table, const Config& config, const std::string& attention) {
  if (!config.qk_norm) return std::nullopt;
  const auto query = add_vector(table, attention + ".q_norm.weight", config.head_dim, Initial::ones);
  const auto key = add_vector(table, attention + ".k_norm.weight", config.head_dim, Initial::ones);
  return QkNorm<Scalar>(config, query, key);
}

/// The tensors of one block in their published order, and the two sublayers that use them.
template <class Scalar>
Block<Scalar> add_block(const Tables& tables, const Config& config, std::int64_t layer,
                        const std::shared_ptr<const RotaryTables>& rotary) {
  ParameterTable& table = tables.base;
  const std::string prefix = "model.layers." + std::to_string(layer);
  const std::string attention = prefix + ".self_attn";
  const std::string mlp = prefix + ".mlp";
  const std::int64_t dim = config.dim;
  open_unit_of_block(table, config, layer);

  const auto qkv = add_qkv<Scalar>(tables, config, attention);
  const auto heads = add_matrix(table, attention + ".o_proj.weight", dim, config.heads * config.head_dim);
  const auto qk_norm = add_qk_norm<Scalar>(table, config, attention);
  const auto gate = add_matrix(table, mlp + ".gate_proj.weight", config.ffn, dim);
  const auto gate_up = add_matrix_below(table, gate, mlp + ".up_proj.weight", config.ffn);
  const auto down = add_matrix(table, mlp + ".down_proj.weight", dim, config.ffn);
  const auto norm_1 = add_norm<Scalar>(table, prefix + ".input_layernorm", config);
  const auto norm_2 = add_norm<Scalar>(table, prefix + ".post_attention_layernorm", config);

  const auto output = projection<Scalar>(tables, {{attention + ".o_proj", dim}}, heads);
  const auto up =
      projection<Scalar>(tables, {{mlp + ".gate_proj", config.ffn}, {mlp + ".up_proj", config.ffn}}, gate_up);
  const auto into_residual = projection<Scalar>(tables, {{mlp + ".down_proj", dim}}, down);
  const AttentionWeights<Scalar> weights{qkv, output, qk_norm};
  Block<Scalar> block;
  block.push_back(std::make_unique<SelfAttention<Scalar>>(config, layer, norm_1, weights, rotary));
  block.push_back(std::make_unique<FeedForward<Scalar>>(config, layer, Activation::swiglu, norm_2, up, into_residual));
  return block;
}

}  // namespace

void resolve_llama(Config& config) {
  if (config.kv_heads == 0) config.kv_heads = config.heads;
  accept(config.heads % config.kv_heads == 0, "kv_heads", config.kv_heads,
         "a divisor of model.heads = " + std::to_string(config.heads));
  accept(config.head_dim > 0 || config.dim % config.heads == 0, "heads", config.heads,
         "a divisor of model.dim = " + std::to_string(config.dim) + ", or model.head_dim given");
  if (config.head_dim == 0) config.head_dim = config.dim / config.heads;
  accept(config.head_dim % 2 == 0, "head_dim", config.head_dim, "an even number: RoPE turns pairs of channels");
  if (config.ffn == 0) config.ffn = (8 * config.dim / 3 + 63) / 64 * 64;
}

template <class Scalar>
std::unique_ptr<Model<Scalar>> make_llama(const Config& config) {
  const auto rotary = std::make_shared<RotaryTables>();
  rotary->theta = config.rope_theta;
  rotary->scaling = config.rope_scaling;

  ParameterTable table;
  AdapterLayout adapters(config);
  const bool tied = config.tie_embeddings;
  const bool in_blocks = config.vocab_block > 0;
  const auto add_tokens = [&](const std::string& name, VocabularyUse use, const std::string& unit) {
    return add_vocabulary(table, name, use, config.vocab, config.dim, config.vocab_block, unit);
  };
  if (!in_blocks) table.add_unit("embedding", kEmbeddingSlot);
  const auto tokens =
      add_tokens("model.embed_tokens.weight", tied ? VocabularyUse::both : VocabularyUse::lookup, "embedding");

  std::vector<Block<Scalar>> blocks;
  for (std::int64_t layer = 0; layer < config.layers; ++layer) {
    blocks.push_back(add_block<Scalar>(Tables{table, adapters}, config, layer, rotary));
  }

  const bool norm_apart = tied || in_blocks || is_frozen(config, "lm_head.weight");
  const int head = table.add_unit("head", norm_apart ? kHeadSlot : kEmbeddingSlot);
  const auto norm = add_norm<Scalar>(table, "model.norm", config);
  if (norm_apart && !tied && !in_blocks) table.add_unit("vocabulary", kEmbeddingSlot);
  const auto vocabulary = tied ? tokens : add_tokens("lm_head.weight", VocabularyUse::head, "head");
  adapters.append_to(table);

  return std::make_unique<Decoder<Scalar>>(
      DecoderParts<Scalar>{config, std::move(table), Embedding<Scalar>(config, tokens), std::move(blocks),
                           Head<Scalar>(norm, head, vocabulary, in_blocks), rotary});
}

#define KOZERO_INSTANTIATE(T) template std::unique_ptr<Model<T>> make_llama<T>(const Config&);
KOZERO_FOR_STORED_TYPES(KOZERO_INSTANTIATE)
#undef KOZERO_INSTANTIATE

}  // namespace kozero::model
