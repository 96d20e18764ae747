// SPDX-FileCopyrightText: The KoZeRO authors
// SPDX-License-Identifier: Apache-2.0
// test_read_config.cpp: config.json of GPT-2, Llama and Qwen read, written and read again; other networks are rejected.
#include <catch2/catch_test_macros.hpp>

#include <nlohmann/json.hpp>

#include <support/scratch_folder.hpp>
#include <support/thrown.hpp>
#include "src/huggingface/config_json.hpp"

namespace kozero::huggingface {
namespace {

using Json = nlohmann::json;

class ConfigFile {
 public:
  explicit ConfigFile(Json base) : base_(std::move(base)) {}

  model::Config read(const Json& changes) const { return read_config(put(changes)); }
  /// The notes, without "PATH: ".
  std::vector<std::string> notes(const Json& changes) const {
    const std::string path = put(changes);
    std::vector<std::string> notes;
    read_config(path, &notes);
    for (std::string& note : notes) {
      REQUIRE(note.starts_with(path + ": "));
      note = note.substr(path.size() + 2);
    }
    return notes;
  }
  /// The error text after "PATH: ".
  std::string refusal(const Json& changes) const {
    const std::string path = put(changes);
    const auto thrown = tests::thrown_by([&] { read_config(path); });
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

  tests::ScratchFolder folder_{"config_json"};
  Json base_;
};

const Json kGpt2 = {{"model_type", "gpt2"}, {"n_layer", 2}, {"n_embd", 16}, {"n_head", 4}, {"vocab_size", 61}};
const Json kLlama = {{"model_type", "llama"},         {"num_hidden_layers", 2},   {"hidden_size", 16},
                     {"num_attention_heads", 4},      {"num_key_value_heads", 2}, {"intermediate_size", 24},
                     {"max_position_embeddings", 32}, {"vocab_size", 61},         {"rms_norm_eps", 1e-5}};

Json changed(Json base, const Json& changes) {
  base.update(changes);
  return base;
}

const Json kQwen2 = changed(kLlama, {{"model_type", "qwen2"}, {"use_sliding_window", false}, {"sliding_window", 4096}});
const Json kQwen3 = changed(kQwen2, {{"model_type", "qwen3"}, {"head_dim", 6}});
const Json kLlama3Scaling = {{"rope_type", "llama3"},
                             {"factor", 32.0},
                             {"low_freq_factor", 1.0},
                             {"high_freq_factor", 4.0},
                             {"original_max_position_embeddings", 8192}};

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

TEST_CASE("Llama 3's scaling in the old form and the new") {
  const ConfigFile file(kLlama);
  const model::RopeScaling wanted{32.0F, 1.0F, 4.0F, 8192};
  const auto old_form = file.read({{"rope_theta", 5e5}, {"rope_scaling", kLlama3Scaling}});
  CHECK(old_form.rope_scaling == wanted);
  CHECK(old_form.rope_theta == 5e5F);
  const Json parameters = changed(kLlama3Scaling, {{"rope_theta", 5e5}});
  const auto new_form = file.read({{"rope_parameters", parameters}});
  CHECK(new_form.rope_scaling == wanted);
  CHECK(new_form.rope_theta == 5e5F);
  const Json both = {{"rope_theta", 5e5}, {"rope_scaling", kLlama3Scaling}, {"rope_parameters", parameters}};
  CHECK(file.read(both).rope_scaling == wanted);
  Json oldest = kLlama3Scaling;
  oldest["type"] = oldest["rope_type"];
  CHECK(file.read({{"rope_scaling", oldest}}).rope_scaling == wanted);
  oldest.erase("rope_type");
  CHECK(file.read({{"rope_scaling", oldest}}).rope_scaling == wanted);
}

TEST_CASE("A scaling that lies, or that is another in each form, is refused") {
  const ConfigFile file(kLlama);
  const auto refusal = [&](const Json& changes) {
    const std::string text = file.refusal({{"rope_scaling", changed(kLlama3Scaling, changes)}});
    const std::string inside = "rope_scaling: ";
    return text.starts_with(inside) ? text.substr(inside.size()) : text;
  };
  CHECK(refusal({{"factor", nullptr}}) == "factor = absent: accepted is a number above 0");
  CHECK(refusal({{"factor", "32"}}) == "factor = \"32\": accepted is a number above 0");
  CHECK(refusal({{"factor", 0.5}}) == "model.rope_scaling.factor = 0.500000: accepted: a number of at least 1");
  CHECK(refusal({{"low_freq_factor", -1}}) == "low_freq_factor = -1: accepted is a number above 0");
  CHECK(refusal({{"high_freq_factor", 1.0}}) ==
        "model.rope_scaling.high_freq_factor = 1.000000: accepted: a number above low_freq_factor = 1.000000");
  CHECK(refusal({{"original_max_position_embeddings", 0}}) ==
        "original_max_position_embeddings = 0: accepted is an integer from 1 to 16777216");
  CHECK(refusal({{"partial_rotary_factor", 0.5}}) ==
        "partial_rotary_factor = 0.5: accepted is 1.0, KoZeRO has no other");
  CHECK(refusal({{"type", "linear"}}).ends_with(": accepted is a type that equals rope_type"));
  CHECK(refusal({{"full_attention", kLlama3Scaling}}).ends_with(": accepted is one RoPE for all layers"));
  const Json parameters = {{"rope_type", "default"}, {"rope_theta", 10000.0}};
  CHECK(file.refusal({{"rope_scaling", kLlama3Scaling}, {"rope_parameters", parameters}})
            .ends_with(": accepted beside rope_scaling is what says the same"));
}

TEST_CASE("Qwen's configs, with what they leave out") {
  const ConfigFile qwen2(kQwen2);
  const ConfigFile qwen3(kQwen3);
  const auto plain = qwen2.read({});
  CHECK(plain.arch == "qwen2");
  CHECK(plain.qkv_bias);
  CHECK_FALSE(plain.qk_norm);
  CHECK(plain.head_dim == 4);
  CHECK(qwen2.read({{"layer_types", {"full_attention", "full_attention"}}, {"rope_theta", 1e6}}).rope_theta == 1e6F);
  const auto normed = qwen3.read({{"attention_bias", false}, {"tie_word_embeddings", true}});
  CHECK(normed.arch == "qwen3");
  CHECK(normed.qk_norm);
  CHECK_FALSE(normed.qkv_bias);
  CHECK(normed.head_dim == 6);
  CHECK(normed.tie_embeddings);
  CHECK(qwen3.read({{"head_dim", nullptr}}).head_dim == 128);
  const auto defaults = qwen2.read({{"intermediate_size", nullptr},
                                    {"vocab_size", nullptr},
                                    {"rms_norm_eps", nullptr},
                                    {"max_position_embeddings", nullptr}});
  CHECK(defaults.ffn == 22016);
  CHECK(defaults.vocab == 151936);
  CHECK(defaults.seq == 32768);
  CHECK(defaults.norm_eps == 1e-6F);
}

TEST_CASE("What of Qwen would change the logits is refused by its key") {
  const ConfigFile qwen2(kQwen2);
  const ConfigFile qwen3(kQwen3);
  CHECK(qwen2.refusal({{"use_sliding_window", true}}) ==
        "use_sliding_window = true: accepted is false, KoZeRO has no other");
  CHECK(qwen3.refusal({{"layer_types", {"full_attention", "sliding_attention"}}}) ==
        "layer_types = [\"full_attention\",\"sliding_attention\"]: accepted is \"full_attention\" for every layer");
  CHECK(qwen3.refusal({{"attention_bias", true}}) == "attention_bias = true: accepted is false, KoZeRO has no other");
  CHECK(qwen2.refusal({{"num_key_value_heads", nullptr}}) ==
        "num_key_value_heads = absent: accepted is an integer from 1 to 16777216");
  CHECK(qwen3.refusal({{"head_dim", 5}}).find("an even number") != std::string::npos);
  CHECK(qwen3.refusal({{"hidden_act", "gelu"}}) == "hidden_act = \"gelu\": accepted are \"silu\", \"swish\"");
  CHECK(qwen2.refusal({{"rope_scaling", {{"type", "yarn"}, {"factor", 4.0}}}})
            .ends_with(": KoZeRO has no RoPE scaling \"yarn\"; accepted are \"default\", \"llama3\""));
}

TEST_CASE("Every other network is refused by its key") {
  const ConfigFile gpt2(kGpt2);
  const std::string accepted = ": accepted: \"gpt2\", \"llama\", \"qwen2\", \"qwen3\"";
  CHECK(gpt2.refusal({{"model_type", "qwen2_moe"}}) == "model_type = \"qwen2_moe\"" + accepted);
  CHECK(gpt2.refusal({{"model_type", "bert\n"}}) == "model_type = \"bert\\n\"" + accepted);
  const std::string is_llama = "; a Mistral without sliding_window is a Llama: write \"llama\" here";
  CHECK(gpt2.refusal({{"model_type", "mistral"}}) == "model_type = \"mistral\"" + accepted + is_llama);
  CHECK(gpt2.refusal({{"model_type", "mistral"}, {"sliding_window", nullptr}}) ==
        "model_type = \"mistral\"" + accepted + is_llama);
  CHECK(gpt2.refusal({{"model_type", "mistral"}, {"sliding_window", 4096}}) == "model_type = \"mistral\"" + accepted);
  CHECK(gpt2.refusal({{"model_type", nullptr}}) == "model_type = absent" + accepted);
  CHECK(gpt2.refusal({{"activation_function", "relu"}}) ==
        "activation_function = \"relu\": accepted are \"gelu_new\", \"gelu_pytorch_tanh\"");
  CHECK(gpt2.refusal({{"scale_attn_by_inverse_layer_idx", true}}) ==
        "scale_attn_by_inverse_layer_idx = true: accepted is false, KoZeRO has no other");
  CHECK(gpt2.refusal({{"torch_dtype", "int8"}}) ==
        "torch_dtype = \"int8\": accepted are \"float32\", \"float16\", \"bfloat16\", \"auto\"");
  CHECK(gpt2.refusal({{"quantization_config", Json::object()}}) ==
        "quantization_config = {}: accepted are weights that are not quantized");

  const ConfigFile llama(kLlama);
  CHECK(llama.refusal({{"rope_scaling", {{"rope_type", "dynamic"}, {"factor", 8}}}}) ==
        "rope_scaling = {\"factor\":8,\"rope_type\":\"dynamic\"}: KoZeRO has no RoPE scaling \"dynamic\"; accepted are "
        "\"default\", \"llama3\"");
  for (const std::string type : {"linear", "yarn", "longrope", "mrope"}) {
    const std::string refused = "KoZeRO has no RoPE scaling \"" + type + "\"";
    CHECK(llama.refusal({{"rope_scaling", {{"type", type}}}}).find(refused) != std::string::npos);
    CHECK(llama.refusal({{"rope_parameters", {{"rope_type", type}}}}).find(refused) != std::string::npos);
  }
  CHECK(llama.refusal({{"rope_parameters", 7}}) == "rope_parameters = 7: accepted is an object");
  CHECK(llama.refusal({{"attention_bias", true}}) == "attention_bias = true: accepted is false, KoZeRO has no other");
  CHECK(llama.refusal({{"hidden_act", "gelu"}}) == "hidden_act = \"gelu\": accepted are \"silu\", \"swish\"");
  CHECK(llama.refusal({{"partial_rotary_factor", 0.5}}) ==
        "partial_rotary_factor = 0.5: accepted is 1.0, KoZeRO has no other");
}

// The keys of the table in docs/weights.md, which check_peers.py compares with transformers' classes.
TEST_CASE("Each key of transformers that changes the logits is read or refused, and the others are known") {
  const Json window = {{"layer_types", {"sliding_attention", "full_attention"}}};
  const std::vector<Json> refused_by_all = {{{"is_causal", false}},
                                            {{"per_layer_config", {{"0", {{"head_dim", 8}}}}}},
                                            {{"transformers_weights", "other"}},
                                            {{"pruned_heads", {{"0", {1}}}}},
                                            {{"attention_chunk_size", 8}},
                                            {{"kv_sharing_modes", {"own"}}},
                                            {{"is_encoder_decoder", true}},
                                            window};
  const Json without_effect = {{"initializer_range", 0.5},
                               {"use_cache", false},
                               {"bos_token_id", 3},
                               {"eos_token_id", {3, 4}},
                               {"pad_token_id", 3},
                               {"id2label", {{"0", "a"}}},
                               {"label2id", {{"a", 0}}},
                               {"problem_type", "regression"},
                               {"return_dict", false},
                               {"output_hidden_states", true},
                               {"chunk_size_feed_forward", 4},
                               {"architectures", {"X"}},
                               {"transformers_version", "5.24.0"},
                               {"dtype", "auto"}};
  for (const Json& base : {kGpt2, kLlama, kQwen2, kQwen3}) {
    const ConfigFile file(base);
    const std::string plain = config_text(file.read({}), -1);
    INFO(base["model_type"]);
    for (const Json& change : refused_by_all) {
      CHECK(file.refusal(change).starts_with(change.begin().key() + " = " + change.begin().value().dump() + ": "));
    }
    CHECK(config_text(file.read(without_effect), -1) == plain);
    CHECK(file.notes(without_effect).empty());
    CHECK(file.notes({{"final_logit_softcapping", 30.0}, {"residual_multiplier", nullptr}, {"use_mrope", false}}) ==
          std::vector<std::string>{"final_logit_softcapping: not read, and transformers' " +
                                   base["model_type"].get<std::string>() + " does not read it either"});
  }
  const ConfigFile gpt2(kGpt2);
  const Json of_gpt2 = {{"summary_type", "mean"},
                        {"summary_use_proj", false},
                        {"summary_activation", "tanh"},
                        {"summary_proj_to_labels", false},
                        {"summary_first_dropout", 0.5},
                        {"resid_pdrop", 0.5},
                        {"embd_pdrop", 0.5},
                        {"attn_pdrop", 0.5},
                        {"reorder_and_upcast_attn", true}};
  CHECK(config_text(gpt2.read(of_gpt2), -1) == config_text(gpt2.read({}), -1));
  CHECK(gpt2.notes(of_gpt2).empty());
  CHECK(gpt2.refusal({{"add_cross_attention", true}}).starts_with("add_cross_attention = true: "));
  CHECK(gpt2.refusal({{"scale_attn_weights", false}}).starts_with("scale_attn_weights = false: "));
  for (const Json& base : {kGpt2, kLlama}) {
    CHECK(ConfigFile(base).refusal({{"sliding_window", 8}}) ==
          "sliding_window = 8: accepted is null, KoZeRO has no other");
  }
  const ConfigFile llama(kLlama);
  const Json of_llama = {{"pretraining_tp", 2}, {"attention_dropout", 0.5}, {"sliding_window", nullptr}};
  CHECK(config_text(llama.read(of_llama), -1) == config_text(llama.read({}), -1));
  CHECK(llama.notes(of_llama).empty());
  CHECK(llama.refusal({{"mlp_bias", true}}).starts_with("mlp_bias = true: "));
  CHECK(config_text(llama.read({{"hidden_act", "swish"}}), -1) == config_text(llama.read({}), -1));
  CHECK(
      ConfigFile(kQwen3).notes({{"max_window_layers", 1}, {"sliding_window", 8}, {"attention_dropout", 0.5}}).empty());
}

TEST_CASE("Sizes of a GPT-2 under the names of other networks, which transformers prefers") {
  const ConfigFile gpt2(changed(kGpt2, {{"n_head", nullptr}}));
  CHECK(gpt2.read({{"num_attention_heads", 8}}).heads == 8);
  CHECK(gpt2.read({{"n_head", 4}, {"num_attention_heads", 4}, {"hidden_size", 16}}).heads == 4);
  CHECK(gpt2.refusal({{"n_head", 4}, {"num_attention_heads", 8}}) ==
        "num_attention_heads = 8: accepted is what n_head says");
  CHECK(gpt2.refusal({{"num_hidden_layers", 3}}) == "num_hidden_layers = 3: accepted is what n_layer says");
}

TEST_CASE("One rope_theta of two counts, and the length of Llama 3's scaling may stand elsewhere") {
  const ConfigFile llama(kLlama);
  const Json twice = {{"rope_theta", 5e5}, {"rope_parameters", {{"rope_type", "default"}, {"rope_theta", 1e4}}}};
  CHECK(llama.read(twice).rope_theta == 1e4F);
  CHECK(
      llama.notes(twice) ==
      std::vector<std::string>{"rope_theta = 500000.0 is not used, since rope_parameters or rope_scaling has 10000.0"});
  CHECK(llama.notes({{"rope_theta", 5e5}}).empty());
  Json scaling = kLlama3Scaling;
  scaling.erase("original_max_position_embeddings");
  CHECK(llama.read({{"rope_scaling", scaling}}).rope_scaling.original_seq == 32);
  CHECK(llama.read({{"rope_scaling", scaling}, {"original_max_position_embeddings", 16}}).rope_scaling.original_seq ==
        16);
  CHECK(llama.refusal({{"rope_scaling", kLlama3Scaling}, {"original_max_position_embeddings", 16}}) ==
        "original_max_position_embeddings = 16: accepted is what rope_scaling says, 8192");
}

TEST_CASE("Numbers from outside are in range before anything is computed from them") {
  const ConfigFile file(kGpt2);
  const std::string accepted = ": accepted is an integer from 1 to 16777216";
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
  const tests::ScratchFolder folder("no_config");
  const auto refusal = [&](const std::string& text) {
    const std::string path = folder.put("c.json", text);
    return tests::thrown_by([&] { read_config(path); }).text.substr(path.size());
  };
  CHECK(refusal("") == ": not a JSON object");
  CHECK(refusal("[1]") == ": not a JSON object");
  CHECK(refusal("{\"a\":") == ": not a JSON object");
  CHECK(refusal(std::string(1000, '[')) == ": nested deeper than a config is");
  CHECK(tests::thrown_by([&] { read_config(folder / "none"); }).status == 3);
}

TEST_CASE("What is written is read again") {
  const ConfigFile gpt2(kGpt2);
  const ConfigFile llama(kLlama);
  const Json numbers = {{"rope_theta", 5e5}, {"head_dim", 6}, {"rms_norm_eps", 1e-6}, {"tie_word_embeddings", true}};
  const ConfigFile qwen2(kQwen2);
  const ConfigFile qwen3(kQwen3);
  const Json scaled = {{"rope_theta", 5e5}, {"rope_scaling", changed(kLlama3Scaling, {{"factor", 8.3}})}};
  for (const auto& config : {gpt2.read({{"n_inner", 40}}), llama.read({}), llama.read(numbers), llama.read(scaled),
                             qwen2.read({}), qwen2.read(numbers), qwen3.read({}), qwen3.read(numbers)}) {
    const tests::ScratchFolder folder("config_again");
    const std::string text = config_text(config, 7);
    CHECK(Json::parse(text)["eos_token_id"] == 7);
    const auto again = read_config(folder.put("config.json", text));
    CHECK(config_text(again, 7) == text);
    CHECK(again.norm_eps == config.norm_eps);
    CHECK(again.rope_theta == config.rope_theta);
    CHECK(again.head_dim == config.head_dim);
    CHECK(again.rope_scaling == config.rope_scaling);
    CHECK(again.arch == config.arch);
  }
  CHECK(config_text(gpt2.read({}), 61).find("\"eos_token_id\": null") != std::string::npos);
  const auto refused = tests::thrown_by([] { config_text({.arch = "linear"}, -1); });
  CHECK(refused.status == 2);
}

TEST_CASE("Llama with Qwen's parts is written as Qwen") {
  model::Config config{.arch = "llama", .vocab = 61};
  const auto type_of = [&] { return Json::parse(config_text(model::resolved(config), -1))["model_type"]; };
  CHECK(type_of() == "llama");
  config.qkv_bias = true;
  CHECK(type_of() == "qwen2");
  config.qk_norm = true;
  const auto refused = tests::thrown_by([&] { type_of(); });
  CHECK(refused.status == 2);
  CHECK(refused.text.starts_with("model.qkv_bias and model.qk_norm are both true: Hugging Face has no such network"));
  config.qkv_bias = false;
  CHECK(type_of() == "qwen3");
}

}  // namespace
}  // namespace kozero::huggingface
