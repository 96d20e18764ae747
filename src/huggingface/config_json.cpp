// SPDX-FileCopyrightText: The KoZeRO authors
// SPDX-License-Identifier: Apache-2.0
// config_json.cpp: reads config.json key by key into a network's shape, and writes a network's shape as config.json.
// kFormats at the end is the table of the networks of transformers: another one is two functions and a row.
#include <algorithm>
#include <cstdint>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include <kozero/core/architecture.hpp>
#include <kozero/core/error.hpp>
#include "io/deck/schema.hpp"
#include "io/safetensors/header.hpp"
#include "src/huggingface/config_json.hpp"
#include "src/huggingface/config_keys.hpp"
#include "src/huggingface/unread_keys.hpp"

namespace kozero::huggingface {

namespace {

using OrderedJson = nlohmann::ordered_json;

using Keys = ConfigKeys;

/// Checks the type of stored tensors; each tensor's own type is in its file.
void check_stored_type(const Keys& keys) {
  for (const char* key : {"dtype", "torch_dtype"}) {
    const std::string type = keys.word(key, "float32");
    if (type != "float32" && type != "float16" && type != "bfloat16" && type != "auto") {
      keys.refuse(key, "accepted are \"float32\", \"float16\", \"bfloat16\", \"auto\"");
    }
  }
  if (keys.has("quantization_config")) {
    keys.refuse("quantization_config", "accepted are weights that are not quantized");
  }
}

/// The base inside rope_scaling or rope_parameters wins.
void note_other_theta(const Keys& keys, const std::string& path, float theta, std::vector<std::string>& notes) {
  if (!keys.has("rope_theta") || keys.positive("rope_theta", 1.0) == theta) return;
  notes.push_back(path + ": rope_theta = " + keys.value("rope_theta").dump() + " is not used, since rope_parameters " +
                  "or rope_scaling has " + Json(shortest(theta)).dump());
}

struct Rope {
  float theta = 0.0F;
  model::RopeScaling scaling;
  bool operator==(const Rope&) const = default;
};

/// Llama 3's scaling. Without a length of its own it is that of the positions; transformers prefers the outer key.
model::RopeScaling read_scaling(const Keys& outer, const Keys& inside) {
  constexpr const char* kLength = "original_max_position_embeddings";
  const char* const other = outer.has(kLength) ? kLength : "max_position_embeddings";
  const std::int64_t otherwise = outer.has(other) ? outer.extent(other, 0) : 0;
  const std::int64_t length = inside.extent(kLength, otherwise);
  if (outer.has(kLength) && otherwise != length) {
    outer.refuse(kLength, "accepted is what rope_scaling says, " + std::to_string(length));
  }
  return {inside.positive("factor", 0.0), inside.positive("low_freq_factor", 0.0),
          inside.positive("high_freq_factor", 0.0), length};
}

/// Rejects a scaling other than Llama 3's; the old name of "rope_type" was "type".
Rope read_rope(const Keys& keys, const std::string& key, float outer_theta) {
  const Keys inside = keys.inside(key);
  if (inside.holds_objects()) keys.refuse(key, "accepted is one RoPE for all layers");
  const std::string type = inside.word("rope_type", inside.word("type", "default"));
  if (inside.word("type", type) != type) keys.refuse(key, "accepted is a type that equals rope_type");
  if (type != "default" && type != "llama3") {
    keys.refuse(key, "KoZeRO has no RoPE scaling \"" + io::shown(type) + "\"; accepted are \"default\", \"llama3\"");
  }
  inside.want("partial_rotary_factor", 1.0, 1.0);
  Rope rope{.theta = inside.positive("rope_theta", outer_theta), .scaling = {}};
  if (type == "llama3") rope.scaling = read_scaling(keys, inside);
  return rope;
}

/// The old form, or the new; if both are there, they must agree.
Rope read_rope(const Keys& keys) {
  keys.want("partial_rotary_factor", 1.0, 1.0);
  const float outer_theta = keys.positive("rope_theta", 10000.0);
  std::optional<Rope> rope;
  for (const char* key : {"rope_scaling", "rope_parameters"}) {
    if (!keys.has(key)) continue;
    const Rope found = read_rope(keys, key, outer_theta);
    if (rope && found != *rope) keys.refuse(key, "accepted beside rope_scaling is what says the same");
    rope = found;
  }
  return rope.value_or(Rope{outer_theta, {}});
}

/// A size under GPT-2's own name, or under the name that other networks have, which wins in transformers.
std::int64_t read_size(const Keys& keys, const char* name, const char* alias, std::int64_t otherwise) {
  const std::int64_t own = keys.extent(name, otherwise);
  const std::int64_t other = keys.extent(alias, own);
  if (keys.has(name) && other != own) keys.refuse(alias, std::string("accepted is what ") + name + " says");
  return other;
}

model::Config read_gpt2(const Keys& keys) {
  model::Config config;
  config.layers = read_size(keys, "n_layer", "num_hidden_layers", 12);
  config.dim = read_size(keys, "n_embd", "hidden_size", 768);
  config.heads = read_size(keys, "n_head", "num_attention_heads", 12);
  config.ffn = keys.extent("n_inner", 4 * config.dim);
  config.vocab = keys.extent("vocab_size", 50257);
  config.seq = read_size(keys, "n_positions", "max_position_embeddings", keys.extent("n_ctx", 1024));
  config.norm_eps = keys.positive("layer_norm_epsilon", 1e-5);
  config.tie_embeddings = keys.flag("tie_word_embeddings", true);
  const std::string activation = keys.word("activation_function", "gelu_new");
  if (activation != "gelu_new" && activation != "gelu_pytorch_tanh") {
    keys.refuse("activation_function", "accepted are \"gelu_new\", \"gelu_pytorch_tanh\"");
  }
  keys.want("scale_attn_weights", true, true);
  keys.want("scale_attn_by_inverse_layer_idx", false, false);
  keys.want("add_cross_attention", false, false);
  keys.want_nothing("sliding_window");
  return config;
}

/// transformers' defaults of sizes that a config does not give.
struct DefaultSizes {
  std::int64_t ffn, vocab, seq;
};

/// What Llama's family shares.
model::Config read_rotary(const Keys& keys, const DefaultSizes& sizes) {
  model::Config config;
  config.layers = keys.extent("num_hidden_layers", 32);
  config.dim = keys.extent("hidden_size", 4096);
  config.heads = keys.extent("num_attention_heads", 32);
  config.kv_heads = keys.extent("num_key_value_heads", config.heads);
  if (keys.has("head_dim")) config.head_dim = keys.extent("head_dim", 0);
  config.ffn = keys.extent("intermediate_size", sizes.ffn);
  config.vocab = keys.extent("vocab_size", sizes.vocab);
  config.seq = keys.extent("max_position_embeddings", sizes.seq);
  config.norm_eps = keys.positive("rms_norm_eps", 1e-6);
  config.tie_embeddings = keys.flag("tie_word_embeddings", false);
  const Rope rope = read_rope(keys);
  config.rope_theta = rope.theta;
  config.rope_scaling = rope.scaling;
  const std::string activation = keys.word("hidden_act", "silu");
  if (activation != "silu" && activation != "swish") keys.refuse("hidden_act", "accepted are \"silu\", \"swish\"");
  return config;
}

model::Config read_llama(const Keys& keys) {
  model::Config config = read_rotary(keys, {.ffn = 11008, .vocab = 32000, .seq = 2048});
  keys.want("attention_bias", false, false);
  keys.want("mlp_bias", false, false);
  keys.want_nothing("sliding_window");
  return config;
}

/// Every layer must see the whole sequence. The number of key heads is required, since transformers' default of 32 is
/// never intended.
model::Config read_qwen(const Keys& keys) {
  model::Config config = read_rotary(keys, {.ffn = 22016, .vocab = 151936, .seq = 32768});
  config.kv_heads = keys.extent("num_key_value_heads", 0);
  keys.want("use_sliding_window", false, false);
  return config;
}

model::Config read_qwen3(const Keys& keys) {
  model::Config config = read_qwen(keys);
  config.head_dim = keys.extent("head_dim", 128);
  keys.want("attention_bias", false, false);
  return config;
}

OrderedJson gpt2_json(const model::Config& config) {
  const double dropout = shortest(config.dropout);
  return {{"activation_function", "gelu_new"},
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

/// rope_scaling of the old form; null without scaling.
OrderedJson rope_scaling_json(const model::RopeScaling& scaling) {
  if (scaling.factor == 1.0F) return nullptr;
  return {{"rope_type", "llama3"},
          {"factor", shortest(scaling.factor)},
          {"low_freq_factor", shortest(scaling.low_freq_factor)},
          {"high_freq_factor", shortest(scaling.high_freq_factor)},
          {"original_max_position_embeddings", scaling.original_seq}};
}

/// rope_parameters of the new form.
OrderedJson rope_parameters_json(const model::Config& config) {
  OrderedJson parameters = rope_scaling_json(config.rope_scaling);
  if (parameters.is_null()) parameters["rope_type"] = "default";
  parameters["rope_theta"] = shortest(config.rope_theta);
  return parameters;
}

/// What Llama's family shares.
OrderedJson llama_json(const model::Config& config) {
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

OrderedJson qwen_json(const model::Config& config) {
  OrderedJson json = llama_json(config);
  json.erase("mlp_bias");
  if (config.qkv_bias) json.erase("attention_bias");
  json["use_sliding_window"] = false;
  json["sliding_window"] = nullptr;
  json["max_window_layers"] = config.layers;
  return json;
}

const std::string kGpt2Prefix = "transformer.";
const std::vector<std::string> kGpt2Buffers = {"h.*.attn.bias", "h.*.attn.masked_bias"};
const std::vector<std::string> kRotaryBuffers = {"model.layers.*.self_attn.rotary_emb.inv_freq"};

/// A network of transformers. `type` is its model_type and the architecture's name in KoZeRO.
struct Format {
  std::string type;
  const char* class_name;
  model::Config (*read)(const Keys&);
  OrderedJson (*write)(const model::Config&);
  TensorNames names;
};

const std::vector<Format> kFormats = {
    {"gpt2", "GPT2LMHeadModel", read_gpt2, gpt2_json, {kGpt2Prefix, kGpt2Buffers, true}},
    {"llama", "LlamaForCausalLM", read_llama, llama_json, {"", kRotaryBuffers, false}},
    {"qwen2", "Qwen2ForCausalLM", read_qwen, qwen_json, {"", kRotaryBuffers, false}},
    {"qwen3", "Qwen3ForCausalLM", read_qwen3, qwen_json, {"", kRotaryBuffers, false}},
};

/// "gpt2", "llama", ...
std::string accepted_types() {
  std::vector<std::string> types;
  for (const Format& format : kFormats) types.push_back('"' + format.type + '"');
  return io::joined(types);
}

const Format* find_format(const std::string& type) {
  const auto found =
      std::find_if(kFormats.begin(), kFormats.end(), [&](const Format& each) { return each.type == type; });
  return found == kFormats.end() ? nullptr : &*found;
}

const Format& format_of(const std::string& arch) {
  if (const Format* found = find_format(arch)) return *found;
  throw Error(Failure::deck, "model.arch = \"" + arch +
                                 "\": Hugging Face has no such network; accepted for export are " + accepted_types());
}

/// The architecture's own format, or, if it has optional parts, the format of its family with these parts.
const Format& format_with_parts(const model::Config& config) {
  const auto has_parts = [&](const Format& format) {
    using Part = Architecture::Part;
    const Architecture& traits = architecture(format.type);
    return traits.rotary == architecture(config.arch).rotary && (traits.qkv_bias == Part::always) == config.qkv_bias &&
           (traits.qk_norm == Part::always) == config.qk_norm;
  };
  const Format& own = format_of(config.arch);
  if (has_parts(own)) return own;
  for (const Format& format : kFormats) {
    if (has_parts(format)) return format;
  }
  throw Error(Failure::deck,
              "model.qkv_bias and model.qk_norm are both true: Hugging Face has no such network; accepted for export "
              "is one of them, as qwen2 and qwen3 have");
}

}  // namespace

const TensorNames& tensor_names(const model::Config& config) { return format_of(config.arch).names; }

model::Config read_config(const std::string& path, std::vector<std::string>* notes) {
  const Keys keys = read_config_keys(path);
  const Format* format = find_format(keys.word("model_type", ""));
  if (format == nullptr) {
    const bool is_llama = keys.word("model_type", "") == "mistral" && !keys.has("sliding_window");
    keys.refuse("model_type",
                "accepted: " + accepted_types() +
                    (is_llama ? "; a Mistral without sliding_window is a Llama: write \"llama\" here" : ""));
  }
  check_stored_type(keys);
  check_common_keys(keys);
  model::Config config = format->read(keys);
  config.arch = format->type;
  if (notes != nullptr) {
    if (architecture(format->type).rotary) note_other_theta(keys, path, config.rope_theta, *notes);
    note_unread_keys(keys, path, format->type, *notes);
  }
  try {
    return model::resolved(config);
  } catch (const Error& error) {
    throw Error(Failure::input, path + ": " + error.what());
  }
}

const std::string& exported_type(const model::Config& config) { return format_with_parts(config).type; }

std::string config_text(const model::Config& config, int end_of_text, const std::string& dtype) {
  const Format& format = format_with_parts(config);
  OrderedJson json = {{"architectures", {format.class_name}}, {"model_type", format.type}};
  json.update(format.write(config));
  json["vocab_size"] = config.vocab;
  json["tie_word_embeddings"] = config.tie_embeddings;
  const OrderedJson document =
      end_of_text >= 0 && end_of_text < config.vocab ? OrderedJson(end_of_text) : OrderedJson(nullptr);
  json["bos_token_id"] = document;
  json["eos_token_id"] = document;
  json["torch_dtype"] = dtype;
  json["dtype"] = dtype;
  json["use_cache"] = true;
  return json.dump(2) + "\n";
}

}  // namespace kozero::huggingface
