// SPDX-FileCopyrightText: The KoZeRO authors
// SPDX-License-Identifier: Apache-2.0
#include <nlohmann/json.hpp>

#include <kozero/core/error.hpp>
#include <kozero/exchange/config_json.hpp>

#include "shortest.hpp"

namespace kozero::exchange {
namespace {

using Json = nlohmann::ordered_json;

Json gpt2_json(const model::Config& config) {
  const double dropout = shortest(config.dropout);
  return {{"architectures", {"GPT2LMHeadModel"}},
          {"model_type", "gpt2"},
          {"activation_function", "gelu_new"},
          {"n_layer", config.layers},
          {"n_embd", config.dim},
          {"n_head", config.heads},
          {"n_inner", config.ffn},
          {"n_positions", config.seq},
          {"n_ctx", config.seq},
          {"layer_norm_epsilon", shortest(config.norm_eps)},
          {"resid_pdrop", dropout},
          {"embd_pdrop", dropout},
          {"attn_pdrop", dropout}};
}

Json llama_json(const model::Config& config) {
  const double theta = shortest(config.rope_theta);
  return {{"architectures", {"LlamaForCausalLM"}},
          {"model_type", "llama"},
          {"hidden_act", "silu"},
          {"num_hidden_layers", config.layers},
          {"hidden_size", config.dim},
          {"num_attention_heads", config.heads},
          {"num_key_value_heads", config.kv_heads},
          {"head_dim", config.head_dim},
          {"intermediate_size", config.ffn},
          {"max_position_embeddings", config.seq},
          {"rms_norm_eps", shortest(config.norm_eps)},
          {"rope_theta", theta},
          {"rope_parameters", {{"rope_type", "default"}, {"rope_theta", theta}}},
          {"attention_bias", false},
          {"attention_dropout", 0.0},
          {"mlp_bias", false}};
}

}  // namespace

std::string config_text(const model::Config& config, int end_of_text, const std::string& dtype) {
  if (config.arch != "gpt2" && config.arch != "llama") {
    throw Error(Failure::deck, "model.arch = \"" + config.arch +
                                   "\": Hugging Face has no such network; accepted for export are \"gpt2\", \"llama\"");
  }
  Json json = config.arch == "gpt2" ? gpt2_json(config) : llama_json(config);
  json["vocab_size"] = config.vocab;
  json["tie_word_embeddings"] = config.tie_embeddings;
  const Json document = end_of_text >= 0 && end_of_text < config.vocab ? Json(end_of_text) : Json(nullptr);
  json["bos_token_id"] = document;
  json["eos_token_id"] = document;
  json["torch_dtype"] = dtype;
  json["dtype"] = dtype;
  json["use_cache"] = true;
  return json.dump(2) + "\n";
}

}  // namespace kozero::exchange
