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

/// rope_scaling of the old form; null without one.
Json rope_scaling_json(const model::RopeScaling& scaling) {
  if (scaling.factor == 1.0F) return nullptr;
  return {{"rope_type", "llama3"},
          {"factor", shortest(scaling.factor)},
          {"low_freq_factor", shortest(scaling.low_freq_factor)},
          {"high_freq_factor", shortest(scaling.high_freq_factor)},
          {"original_max_position_embeddings", scaling.original_seq}};
}

/// rope_parameters of the new form.
Json rope_parameters_json(const model::Config& config) {
  Json parameters = rope_scaling_json(config.rope_scaling);
  if (parameters.is_null()) parameters["rope_type"] = "default";
  parameters["rope_theta"] = shortest(config.rope_theta);
  return parameters;
}

/// What Llama's family shares.
Json rotary_json(const model::Config& config) {
  return {{"hidden_act", "silu"},
          {"num_hidden_layers", config.layers},
          {"hidden_size", config.dim},
          {"num_attention_heads", config.heads},
          {"num_key_value_heads", config.kv_heads},
          {"head_dim", config.head_dim},
          {"intermediate_size", config.ffn},
          {"max_position_embeddings", config.seq},
          {"rms_norm_eps", shortest(config.norm_eps)},
          {"rope_theta", shortest(config.rope_theta)},
          {"rope_scaling", rope_scaling_json(config.rope_scaling)},
          {"rope_parameters", rope_parameters_json(config)},
          {"attention_bias", false},
          {"attention_dropout", 0.0},
          {"mlp_bias", false}};
}

Json qwen_json(const model::Config& config, const char* type, const char* architecture) {
  Json json = {{"architectures", {architecture}}, {"model_type", type}};
  json.update(rotary_json(config));
  json.erase("mlp_bias");
  if (config.qkv_bias) json.erase("attention_bias");
  json["use_sliding_window"] = false;
  json["sliding_window"] = nullptr;
  json["max_window_layers"] = config.layers;
  return json;
}

Json network_json(const model::Config& config) {
  if (config.arch == "gpt2") return gpt2_json(config);
  if (!config.rotary) {
    throw Error(Failure::deck, "model.arch = \"" + config.arch +
                                   "\": Hugging Face has no such network; accepted for export are \"gpt2\", \"llama\", "
                                   "\"qwen2\", \"qwen3\"");
  }
  if (config.qkv_bias && config.qk_norm) {
    throw Error(Failure::deck,
                "model.qkv_bias and model.qk_norm are both true: Hugging Face has no such network; accepted for export "
                "is one of them, as qwen2 and qwen3 have");
  }
  if (config.qkv_bias) return qwen_json(config, "qwen2", "Qwen2ForCausalLM");
  if (config.qk_norm) return qwen_json(config, "qwen3", "Qwen3ForCausalLM");
  Json json = {{"architectures", {"LlamaForCausalLM"}}, {"model_type", "llama"}};
  json.update(rotary_json(config));
  return json;
}

}  // namespace

std::string config_text(const model::Config& config, int end_of_text, const std::string& dtype) {
  Json json = network_json(config);
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
