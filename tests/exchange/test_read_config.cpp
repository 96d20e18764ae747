// SPDX-FileCopyrightText: The KoZeRO authors
// SPDX-License-Identifier: Apache-2.0
#include <catch2/catch_test_macros.hpp>

#include <nlohmann/json.hpp>

#include <kozero/exchange/config_json.hpp>

#include "scratch_folder.hpp"
#include "thrown.hpp"

namespace kozero::exchange {
namespace {

using Json = nlohmann::json;

class ConfigFile {
 public:
  explicit ConfigFile(Json base) : base_(std::move(base)) {}

  model::Config read(const Json& changes) const { return read_config(put(changes)); }
  /// The refusal behind "PATH: ".
  std::string refusal(const Json& changes) const {
    const std::string path = put(changes);
    const auto thrown = io::thrown_by([&] { read_config(path); });
    CHECK(thrown.status == 3);
    REQUIRE(thrown.text.starts_with(path + ": "));
    return thrown.text.substr(path.size() + 2);
  }

 private:
  std::string put(const Json& changes) const {
    Json json = base_;
    if (!changes.is_null()) json.update(changes);
    return folder_.put("config.json", json.dump());
  }

  io::ScratchFolder folder_{"config_json"};
  Json base_;
};

const Json kGpt2 = {{"model_type", "gpt2"}, {"n_layer", 2}, {"n_embd", 16}, {"n_head", 4}, {"vocab_size", 61}};
const Json kLlama = {{"model_type", "llama"},      {"num_hidden_layers", 2},    {"hidden_size", 16},
                     {"num_attention_heads", 4},   {"num_key_value_heads", 2},  {"intermediate_size", 24},
                     {"max_position_embeddings", 32}, {"vocab_size", 61},       {"rms_norm_eps", 1e-5}};

TEST_CASE("GPT-2's config, with what it leaves out") {
  const ConfigFile file(kGpt2);
  const auto config = file.read({{"n_inner", nullptr}, {"layer_norm_epsilon", 1e-6}});
  CHECK(config.ffn == 64);
  CHECK(config.seq == 1024);
  CHECK(config.tie_embeddings);
  CHECK(config.norm_eps == 1e-6F);
  CHECK(file.read({{"n_ctx", 20}}).seq == 20);
  CHECK(file.read({{"n_inner", 40}, {"n_positions", 8}, {"tie_word_embeddings", false}}).ffn == 40);
}

TEST_CASE("Llama's config in the old form and the new") {
  const ConfigFile file(kLlama);
  const auto plain = file.read({});
  CHECK(plain.rope_theta == 10000.0F);
  CHECK(plain.head_dim == 4);
  CHECK(plain.kv_heads == 2);
  CHECK_FALSE(plain.tie_embeddings);
  CHECK(file.read({{"rope_theta", 5e5}, {"rope_scaling", nullptr}, {"torch_dtype", "bfloat16"}}).rope_theta == 5e5F);
  const Json parameters = {{"rope_theta", 5e5}, {"rope_type", "default"}};
  CHECK(file.read({{"rope_parameters", parameters}, {"dtype", "float16"}}).rope_theta == 5e5F);
  CHECK(file.read({{"num_key_value_heads", nullptr}, {"head_dim", nullptr}}).kv_heads == 4);
  CHECK(file.read({{"head_dim", 6}}).head_dim == 6);
}

TEST_CASE("Every other network is refused by its key") {
  const ConfigFile gpt2(kGpt2);
  CHECK(gpt2.refusal({{"model_type", "qwen2"}}) == "model_type = \"qwen2\": not built yet; accepted are \"gpt2\", \"llama\"");
  CHECK(gpt2.refusal({{"model_type", "bert\n"}}) == "model_type = \"bert\\n\": accepted are \"gpt2\", \"llama\"");
  CHECK(gpt2.refusal({{"model_type", nullptr}}) == "model_type = absent: accepted are \"gpt2\", \"llama\"");
  CHECK(gpt2.refusal({{"activation_function", "relu"}}) ==
        "activation_function = \"relu\": accepted are \"gelu_new\", \"gelu_pytorch_tanh\"");
  CHECK(gpt2.refusal({{"scale_attn_by_inverse_layer_idx", true}}) ==
        "scale_attn_by_inverse_layer_idx = true: accepted is false, KoZeRO has no other");
  CHECK(gpt2.refusal({{"torch_dtype", "int8"}}) ==
        "torch_dtype = \"int8\": accepted are \"float32\", \"float16\", \"bfloat16\"");
  CHECK(gpt2.refusal({{"quantization_config", Json::object()}}) ==
        "quantization_config = {}: accepted are weights that are not quantized");

  const ConfigFile llama(kLlama);
  CHECK(llama.refusal({{"rope_scaling", {{"rope_type", "llama3"}, {"factor", 8}}}}) ==
        "rope_scaling = {\"factor\":8,\"rope_type\":\"llama3\"}: RoPE scaling \"llama3\" is not built yet; accepted is "
        "\"default\", none");
  CHECK(llama.refusal({{"rope_scaling", {{"type", "linear"}}}}).find("RoPE scaling \"linear\" is not built yet") !=
        std::string::npos);
  CHECK(llama.refusal({{"rope_parameters", {{"rope_type", "yarn"}}}}).find("\"yarn\" is not built") != std::string::npos);
  CHECK(llama.refusal({{"rope_parameters", 7}}) == "rope_parameters = 7: accepted is an object");
  CHECK(llama.refusal({{"attention_bias", true}}) == "attention_bias = true: accepted is false, KoZeRO has no other");
  CHECK(llama.refusal({{"hidden_act", "gelu"}}) == "hidden_act = \"gelu\": accepted is \"silu\", KoZeRO has no other");
  CHECK(llama.refusal({{"partial_rotary_factor", 0.5}}) ==
        "partial_rotary_factor = 0.5: accepted is 1.0, KoZeRO has no other");
}

TEST_CASE("Numbers from outside are in range before anything is computed from them") {
  const ConfigFile file(kGpt2);
  const std::string accepted = ": accepted is a whole number from 1 to 16777216";
  CHECK(file.refusal({{"n_embd", 0}}) == "n_embd = 0" + accepted);
  CHECK(file.refusal({{"n_embd", -16}}) == "n_embd = -16" + accepted);
  CHECK(file.refusal({{"n_embd", 16.0}}) == "n_embd = 16.0" + accepted);
  CHECK(file.refusal({{"n_layer", 1ULL << 63}}) == "n_layer = 9223372036854775808" + accepted);
  CHECK(file.refusal({{"vocab_size", "61"}}) == "vocab_size = \"61\"" + accepted);
  CHECK(file.refusal({{"layer_norm_epsilon", 0}}) == "layer_norm_epsilon = 0: accepted is a number above 0");
  CHECK(file.refusal({{"layer_norm_epsilon", 1e300}}) == "layer_norm_epsilon = 1e+300: accepted is a number above 0");
  CHECK(file.refusal({{"tie_word_embeddings", 1}}) == "tie_word_embeddings = 1: accepted are true and false");
  CHECK(file.refusal({{"n_head", 5}}).find("heads = 5") != std::string::npos);
}

TEST_CASE("A file that is no config") {
  const io::ScratchFolder folder("no_config");
  const auto refusal = [&](const std::string& text) {
    const std::string path = folder.put("c.json", text);
    return io::thrown_by([&] { read_config(path); }).text.substr(path.size());
  };
  CHECK(refusal("") == ": not a JSON object");
  CHECK(refusal("[1]") == ": not a JSON object");
  CHECK(refusal("{\"a\":") == ": not a JSON object");
  CHECK(refusal(std::string(1000, '[')) == ": nested deeper than a config is");
  CHECK(io::thrown_by([&] { read_config(folder / "none"); }).status == 3);
}

TEST_CASE("What is written is read again") {
  const ConfigFile gpt2(kGpt2);
  const ConfigFile llama(kLlama);
  const Json numbers = {{"rope_theta", 5e5}, {"head_dim", 6}, {"rms_norm_eps", 1e-6}, {"tie_word_embeddings", true}};
  for (const auto& config : {gpt2.read({{"n_inner", 40}}), llama.read({}), llama.read(numbers)}) {
    const io::ScratchFolder folder("config_again");
    const std::string text = config_text(config, 7);
    CHECK(Json::parse(text)["eos_token_id"] == 7);
    const auto again = read_config(folder.put("config.json", text));
    CHECK(config_text(again, 7) == text);
    CHECK(again.norm_eps == config.norm_eps);
    CHECK(again.rope_theta == config.rope_theta);
    CHECK(again.head_dim == config.head_dim);
  }
  CHECK(config_text(gpt2.read({}), 61).find("\"eos_token_id\": null") != std::string::npos);
  const auto refused = io::thrown_by([] { config_text({.arch = "linear"}, -1); });
  CHECK(refused.status == 2);
}

}  // namespace
}  // namespace kozero::exchange
