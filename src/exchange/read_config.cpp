// SPDX-FileCopyrightText: The KoZeRO authors
// SPDX-License-Identifier: Apache-2.0
#include <cmath>
#include <map>

#include <nlohmann/json.hpp>

#include <kozero/core/error.hpp>
#include <kozero/exchange/config_json.hpp>
#include <kozero/io/safetensors_header.hpp>
#include <kozero/io/whole_file.hpp>

namespace kozero::exchange {
namespace {

using Json = nlohmann::json;

constexpr std::int64_t kMaxConfigBytes = 4 << 20;
constexpr std::int64_t kMostExtent = 1 << 24;  // the deck's widest

/// A config.json, asked key by key. A key that is absent or null has its default.
class Keys {
 public:
  Keys(std::string path, Json json) : path_(std::move(path)), json_(std::move(json)) {}

  [[nodiscard]] bool has(const std::string& key) const { return json_.contains(key) && !json_[key].is_null(); }
  [[nodiscard]] const Json& value(const std::string& key) const { return json_[key]; }

  [[noreturn]] void refuse(const std::string& key, const std::string& accepted) const {
    const std::string given = has(key) ? io::shown(json_[key].dump(-1, ' ', true)) : "absent";
    throw Error(Failure::input, path_ + ": " + key + " = " + given + ": " + accepted);
  }

  /// A whole number from 1 to 2^24; `silent` where the key is absent, 0 for a key that must be there.
  [[nodiscard]] std::int64_t extent(const std::string& key, std::int64_t silent) const {
    if (!has(key) && silent > 0) return silent;
    const bool fits = has(key) && json_[key].is_number_unsigned() && json_[key].get<std::uint64_t>() >= 1 &&
                      json_[key].get<std::uint64_t>() <= static_cast<std::uint64_t>(kMostExtent);
    if (!fits) refuse(key, "accepted is a whole number from 1 to " + std::to_string(kMostExtent));
    return json_[key].get<std::int64_t>();
  }

  [[nodiscard]] float positive(const std::string& key, double silent) const {
    if (!has(key)) return static_cast<float>(silent);
    const float number = json_[key].is_number() ? static_cast<float>(json_[key].get<double>()) : 0.0F;
    if (!(number > 0.0F) || !std::isfinite(number)) refuse(key, "accepted is a number above 0");
    return number;
  }

  [[nodiscard]] bool flag(const std::string& key, bool silent) const {
    if (!has(key)) return silent;
    if (!json_[key].is_boolean()) refuse(key, "accepted are true and false");
    return json_[key].get<bool>();
  }

  [[nodiscard]] std::string word(const std::string& key, const std::string& silent) const {
    if (!has(key)) return silent;
    if (!json_[key].is_string()) refuse(key, "accepted is a text");
    return json_[key].get<std::string>();
  }

  /// Whatever the key is, it must have this value, spoken or silent.
  void want(const std::string& key, const Json& silent, const Json& accepted) const {
    const Json& given = has(key) ? json_[key] : silent;
    if (given != accepted) refuse(key, "accepted is " + accepted.dump() + ", KoZeRO has no other");
  }

  /// The object under `key` as keys of its own.
  [[nodiscard]] Keys inside(const std::string& key) const {
    if (!json_[key].is_object()) refuse(key, "accepted is an object");
    return Keys(path_ + ": " + key, json_[key]);
  }

 private:
  std::string path_;
  Json json_;
};

/// Stops the parser where a config would nest beyond reason.
bool shallow(int depth, Json::parse_event_t /*event*/, Json& /*parsed*/) {
  if (depth > 16) throw Error(Failure::input, "nested deeper than a config is");
  return true;
}

Keys read_keys(const std::string& path) {
  Json json;
  try {
    json = Json::parse(io::read_whole_file(path, kMaxConfigBytes), shallow, /*allow_exceptions=*/false);
  } catch (const Error& error) {
    const std::string text = error.what();
    throw Error(Failure::input, text.starts_with(path) ? text : path + ": " + text);
  }
  if (!json.is_object()) throw Error(Failure::input, path + ": not a JSON object");
  return Keys(path, std::move(json));
}

/// The types that tensors may have; each tensor's own type is in its file.
void check_stored_type(const Keys& keys) {
  for (const char* key : {"dtype", "torch_dtype"}) {
    const std::string type = keys.word(key, "float32");
    if (type != "float32" && type != "float16" && type != "bfloat16") {
      keys.refuse(key, "accepted are \"float32\", \"float16\", \"bfloat16\"");
    }
  }
  if (keys.has("quantization_config")) {
    keys.refuse("quantization_config", "accepted are weights that are not quantized");
  }
}

/// A scaling other than none is refused by its name; the old name of "rope_type" was "type".
void check_scaling(const Keys& keys, const std::string& key) {
  const Keys scaling = keys.inside(key);
  for (const char* name : {"rope_type", "type"}) {
    const std::string type = scaling.word(name, "default");
    if (type != "default") {
      keys.refuse(key, "RoPE scaling \"" + io::shown(type) + "\" is not built yet; accepted is \"default\", none");
    }
  }
  scaling.want("partial_rotary_factor", 1.0, 1.0);
}

float rope_theta(const Keys& keys) {
  keys.want("partial_rotary_factor", 1.0, 1.0);
  for (const char* key : {"rope_scaling", "rope_parameters"}) {
    if (keys.has(key)) check_scaling(keys, key);
  }
  const float old_form = keys.positive("rope_theta", 10000.0);
  return keys.has("rope_parameters") ? keys.inside("rope_parameters").positive("rope_theta", old_form) : old_form;
}

model::Config read_gpt2(const Keys& keys) {
  model::Config config;
  config.arch = "gpt2";
  config.layers = keys.extent("n_layer", 12);
  config.dim = keys.extent("n_embd", 768);
  config.heads = keys.extent("n_head", 12);
  config.ffn = keys.extent("n_inner", 4 * config.dim);
  config.vocab = keys.extent("vocab_size", 50257);
  config.seq = keys.extent("n_positions", keys.extent("n_ctx", 1024));
  config.norm_eps = keys.positive("layer_norm_epsilon", 1e-5);
  config.tie_embeddings = keys.flag("tie_word_embeddings", true);
  const std::string activation = keys.word("activation_function", "gelu_new");
  if (activation != "gelu_new" && activation != "gelu_pytorch_tanh") {
    keys.refuse("activation_function", "accepted are \"gelu_new\", \"gelu_pytorch_tanh\"");
  }
  keys.want("scale_attn_weights", true, true);
  keys.want("scale_attn_by_inverse_layer_idx", false, false);
  keys.want("add_cross_attention", false, false);
  return config;
}

model::Config read_llama(const Keys& keys) {
  model::Config config;
  config.arch = "llama";
  config.layers = keys.extent("num_hidden_layers", 32);
  config.dim = keys.extent("hidden_size", 4096);
  config.heads = keys.extent("num_attention_heads", 32);
  config.kv_heads = keys.extent("num_key_value_heads", config.heads);
  if (keys.has("head_dim")) config.head_dim = keys.extent("head_dim", 0);
  config.ffn = keys.extent("intermediate_size", 11008);
  config.vocab = keys.extent("vocab_size", 32000);
  config.seq = keys.extent("max_position_embeddings", 2048);
  config.norm_eps = keys.positive("rms_norm_eps", 1e-6);
  config.tie_embeddings = keys.flag("tie_word_embeddings", false);
  config.rope_theta = rope_theta(keys);
  keys.want("hidden_act", "silu", "silu");
  keys.want("attention_bias", false, false);
  keys.want("mlp_bias", false, false);
  return config;
}

}  // namespace

model::Config read_config(const std::string& path) {
  const Keys keys = read_keys(path);
  const std::string type = keys.word("model_type", "");
  if (type == "qwen2" || type == "qwen3") keys.refuse("model_type", "not built yet; accepted are \"gpt2\", \"llama\"");
  if (type != "gpt2" && type != "llama") keys.refuse("model_type", "accepted are \"gpt2\", \"llama\"");
  check_stored_type(keys);
  const model::Config config = type == "gpt2" ? read_gpt2(keys) : read_llama(keys);
  try {
    return model::resolved(config);
  } catch (const Error& error) {
    throw Error(Failure::input, path + ": " + error.what());
  }
}

}  // namespace kozero::exchange
