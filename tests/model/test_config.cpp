// SPDX-FileCopyrightText: The KoZeRO authors
// SPDX-License-Identifier: Apache-2.0
// test_config.cpp: derived shapes, presets with their parameter counts, refusals, and the tensors' table.
#include <catch2/catch_test_macros.hpp>
#include <catch2/matchers/catch_matchers_string.hpp>
#include <functional>

#include <kozero/core/architecture.hpp>
#include <kozero/core/error.hpp>
#include <kozero/core/presets.hpp>
#include <kozero/model/model.hpp>

namespace kozero::tests {
namespace {

using model::Config;
using model::resolved;
using model::with_preset;

std::string refusal(const std::function<void()>& act) {
  try {
    act();
  } catch (const Error& error) {
    CHECK(error.failure() == Failure::deck);
    return error.what();
  }
  return "accepted";
}

std::int64_t parameters_of(const std::string& preset) {
  return model::make_model<float>(with_preset(Config{}, preset))->parameters().num_parameters();
}

TEST_CASE("keys that are not given are derived") {
  const Config gpt2 = resolved({.arch = "gpt2", .dim = 30, .heads = 3});
  CHECK(gpt2.ffn == 120);
  CHECK(gpt2.kv_heads == 3);
  CHECK(gpt2.head_dim == 10);
  const Config llama = resolved({.arch = "llama", .dim = 512, .heads = 8, .kv_heads = 2});
  CHECK(llama.ffn == 1408);
  CHECK(llama.head_dim == 64);
  CHECK(resolved({.arch = "llama", .dim = 13, .heads = 4, .head_dim = 6}).kv_heads == 4);
  CHECK(resolved({.arch = "linear", .dim = 5, .seq = 64}).seq == 1);
  CHECK(resolved({.arch = "linear", .dim = 5}).ffn == 5);
}

TEST_CASE("presets have the published parameter counts") {
  CHECK(parameters_of("gpt2-124m") == 124439808);
  CHECK(parameters_of("gpt2-350m") == 354823168);
  CHECK(parameters_of("gpt2-774m") == 774030080);
  CHECK(parameters_of("gpt2-1558m") == 1557611200);
  CHECK(parameters_of("llama-1b") == 1235814400);
  CHECK(parameters_of("llama-3b") == 3212749824);
  for (const char* name : {"llama-8b", "llama3.1-8b"}) CHECK(parameters_of(name) == 8030261248);
  for (const char* name : {"llama-70b", "llama3.1-70b"}) CHECK(parameters_of(name) == 70553706496);
  CHECK(parameters_of("llama-13b") == 13015864320);
  for (const char* name : {"qwen2-0.5b", "qwen2.5-0.5b"}) CHECK(parameters_of(name) == 494032768);
  CHECK(parameters_of("qwen2.5-1.5b") == 1543714304);
  CHECK(parameters_of("qwen2.5-3b") == 3085938688);
  CHECK(parameters_of("qwen2.5-7b") == 7615616512);
  CHECK(parameters_of("qwen2.5-14b") == 14770033664);
  CHECK(parameters_of("qwen2.5-32b") == 32763876352);
  CHECK(parameters_of("qwen2.5-72b") == 72706203648);
  CHECK(parameters_of("qwen3-0.6b") == 596049920);
  CHECK(parameters_of("qwen3-8b") == 8190735360);
  CHECK(preset_names().size() == 24);
}

TEST_CASE("qwen2 is llama with biases, qwen3 with norms of q and k; presets bring RoPE's stretching and eps") {
  CHECK(resolved({.arch = "qwen2"}).qkv_bias);
  CHECK_FALSE(resolved({.arch = "qwen2"}).qk_norm);
  CHECK(resolved({.arch = "qwen3"}).qk_norm);
  CHECK_FALSE(resolved({.arch = "qwen3"}).qkv_bias);
  CHECK(resolved({.arch = "qwen3", .dim = 512, .heads = 8}).ffn == 1408);
  for (const char* arch : {"llama", "qwen2", "qwen3"}) CHECK(resolved({.arch = arch}).rotary);
  CHECK_FALSE(resolved({.arch = "gpt2"}).rotary);

  const Config small = resolved(with_preset({}, "qwen3-0.6b"));
  CHECK(small.head_dim == 128);
  CHECK(small.norm_eps == 1e-6F);
  CHECK(small.rope_theta == 1e6F);
  CHECK(small.rope_scaling == model::RopeScaling{});
  CHECK(with_preset({}, "llama-1b").rope_scaling == model::RopeScaling{32.0F, 1.0F, 4.0F, 8192});
  CHECK(with_preset({}, "llama-8b").rope_scaling == model::RopeScaling{});
  CHECK(with_preset({}, "llama3.1-8b").rope_scaling == model::RopeScaling{8.0F, 1.0F, 4.0F, 8192});
  CHECK(with_preset({}, "qwen2.5-7b").norm_eps == 1e-6F);
  CHECK(with_preset({}, "qwen2.5-14b").norm_eps == 1e-5F);
}

TEST_CASE("each architecture has a network with the traits of its row, and each preset has one") {
  using Part = Architecture::Part;
  for (const Architecture& row : kArchitectures) {
    CAPTURE(row.name);
    const Config config = resolved({.arch = row.name});
    CHECK(model::make_model<float>(config)->parameters().num_parameters() > 0);
    CHECK(config.rotary == row.rotary);
    CHECK(config.qkv_bias == (row.qkv_bias == Part::always));
    CHECK(config.qk_norm == (row.qk_norm == Part::always));
    CHECK((refusal([&] { resolved({.arch = row.name, .dropout = 0.1F}); }) == "accepted") == row.dropout);
    CHECK((refusal([&] { resolved({.arch = row.name, .bias = false}); }) == "accepted") == row.biased);
  }
}

TEST_CASE("a preset's name begins with its architecture, and the architecture is there") {
  for (const Preset& preset : kPresets) {
    CAPTURE(preset.name);
    if (preset.is_for_any_arch()) continue;
    CHECK(find_architecture(preset.family.arch) != nullptr);
    CHECK(std::string(preset.name).starts_with(preset.family.arch));
  }
}

TEST_CASE("small presets are shapes for any arch") {
  const Config tiny = with_preset({.arch = "llama", .vocab = 300, .tie_embeddings = false}, "tiny");
  CHECK(tiny.arch == "llama");
  CHECK(tiny.vocab == 300);
  CHECK_FALSE(tiny.tie_embeddings);
  CHECK(resolved(tiny).ffn == 384);
}

TEST_CASE("impossible values are refused, naming key, value and what is accepted") {
  const auto refused = [](const Config& config) { return refusal([&] { resolved(config); }); };
  CHECK(refused({.arch = "gtp2"}) ==
        "model.arch = \"gtp2\": accepted: gpt2, llama, qwen2, qwen3, linear; did you mean \"gpt2\"?");
  CHECK(refused({.dim = 64, .heads = 5}) == "model.heads = 5: accepted: a divisor of model.dim = 64");
  CHECK(refused({.layers = 0}) == "model.layers = 0: accepted: an integer from 1 to 65536");
  CHECK(refused({.heads = 2, .kv_heads = 1}) == "model.kv_heads = 1: accepted: model.heads = 2 under arch gpt2");
  CHECK(refused({.dim = 64, .heads = 2, .head_dim = 16}) ==
        "model.head_dim = 16: accepted: dim / heads = 32 under arch gpt2");
  CHECK(refused({.arch = "llama", .heads = 4, .kv_heads = 3}) ==
        "model.kv_heads = 3: accepted: a divisor of model.heads = 4");
  CHECK(refused({.arch = "llama", .dim = 15, .heads = 3}) ==
        "model.head_dim = 5: accepted: an even number: RoPE turns pairs of channels");
  CHECK(refused({.arch = "llama", .dim = 63, .heads = 2}) ==
        "model.heads = 2: accepted: a divisor of model.dim = 63, or model.head_dim given");
  CHECK_THAT(refused({.arch = "llama", .dropout = 0.1F}), Catch::Matchers::StartsWith("model.dropout = 0.1"));
  CHECK(refused({.arch = "qwen3", .dropout = 0.5F}) ==
        "model.dropout = 0.500000: accepted: 0 under arch qwen3, which has none");
  CHECK(refused({.arch = "llama", .rope_scaling = {.factor = 0.5F}}) ==
        "model.rope_scaling.factor = 0.500000: accepted: a number of at least 1");
  CHECK(refused({.arch = "llama", .rope_scaling = {.factor = 2.0F, .low_freq_factor = 4.0F}}) ==
        "model.rope_scaling.high_freq_factor = 4.000000: accepted: a number above low_freq_factor = 4.000000");
  CHECK_THAT(refused({.arch = "llama", .rope_scaling = {.low_freq_factor = 0.0F}}),
             Catch::Matchers::StartsWith("model.rope_scaling.low_freq_factor = 0"));
  CHECK_THAT(refused({.arch = "llama", .rope_scaling = {.original_seq = 0}}),
             Catch::Matchers::StartsWith("model.rope_scaling.original_seq = 0"));
  CHECK_THAT(refused({.dropout = 1.0F}), Catch::Matchers::StartsWith("model.dropout = 1"));
  CHECK_THAT(refused({.vocab = std::int64_t{1} << 31}), Catch::Matchers::StartsWith("model.vocab = 2147483648"));
  CHECK_THAT(refused({.norm_eps = 0.0F}), Catch::Matchers::StartsWith("model.norm_eps"));
  CHECK_THAT(refusal([] { with_preset(Config{}, "gpt2-124"); }),
             Catch::Matchers::EndsWith("did you mean \"gpt2-124m\"?"));
}

TEST_CASE("biases and norms do not decay, q, k, v and gate, up lie as one matrix") {
  const auto gpt2 =
      model::make_model<float>({.arch = "gpt2", .layers = 1, .dim = 10, .heads = 2, .vocab = 7, .seq = 4});
  for (const auto& row : gpt2->parameters().rows()) CHECK(row.decay == (row.shape.size() == 2));
  CHECK(gpt2->parameters().rows()[2].name == "h.0.ln_1.weight");
  CHECK(gpt2->parameters().num_slots() == 3);

  const auto llama = model::make_model<float>({.arch = "llama",
                                               .layers = 1,
                                               .dim = 12,
                                               .heads = 2,
                                               .kv_heads = 1,
                                               .ffn = 9,
                                               .vocab = 7,
                                               .seq = 4,
                                               .tie_embeddings = false});
  const auto& rows = llama->parameters().rows();
  CHECK(llama->parameters().num_slots() == 2);
  CHECK(rows[1].name == "model.layers.0.self_attn.q_proj.weight");
  CHECK(rows[2].offset == rows[1].offset + rows[1].extent());
  CHECK(rows[3].offset == rows[2].offset + rows[2].extent());
  CHECK(rows[4].offset % kAlignment == 0);
  CHECK(rows[6].offset == rows[5].offset + rows[5].extent());
}

TEST_CASE("Hugging Face's tensors of Qwen: the biases of q, k, v lie as one vector, all of it undecayed") {
  const auto names_behind = [](const Config& config) {
    const auto network = model::make_model<float>(config);
    const auto& rows = network->parameters().rows();
    std::vector<std::string> names;
    for (const auto& row : rows) {
      CHECK(row.decay == (row.shape.size() == 2));
      const std::string prefix = "model.layers.0.self_attn.";
      if (row.name.rfind(prefix, 0) == 0) names.push_back(row.name.substr(prefix.size()));
    }
    return names;
  };
  const Config shape{.layers = 1, .dim = 12, .heads = 2, .kv_heads = 1, .head_dim = 10, .vocab = 7, .seq = 4};
  Config qwen2 = shape, qwen3 = shape;
  qwen2.arch = "qwen2";
  qwen3.arch = "qwen3";
  CHECK(names_behind(qwen2) == std::vector<std::string>{"q_proj.weight", "k_proj.weight", "v_proj.weight",
                                                        "q_proj.bias", "k_proj.bias", "v_proj.bias", "o_proj.weight"});
  CHECK(names_behind(qwen3) == std::vector<std::string>{"q_proj.weight", "k_proj.weight", "v_proj.weight",
                                                        "o_proj.weight", "q_norm.weight", "k_norm.weight"});
  const auto network = model::make_model<float>(qwen2);
  const auto& rows = network->parameters().rows();
  CHECK(rows[4].offset % kAlignment == 0);
  CHECK(rows[5].offset == rows[4].offset + 20);
  CHECK(rows[6].offset == rows[5].offset + 10);
}

TEST_CASE("flops of a token: 6 N + 6 L C T over the parameters that multiply") {
  const auto gpt2 =
      model::make_model<float>({.arch = "gpt2", .layers = 1, .dim = 10, .heads = 2, .vocab = 7, .seq = 4});
  CHECK(gpt2->flops_per_token() == 6.0 * (7 * 10 + 12 * 10 * 10) + 6.0 * 1 * 10 * 4);
  const auto untied = model::make_model<float>(
      {.arch = "gpt2", .layers = 1, .dim = 10, .heads = 2, .vocab = 7, .seq = 4, .tie_embeddings = false});
  CHECK(untied->flops_per_token() == gpt2->flops_per_token());
}

}  // namespace
}  // namespace kozero::tests
