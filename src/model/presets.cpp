// SPDX-FileCopyrightText: The KoZeRO authors
// SPDX-License-Identifier: Apache-2.0
// presets.cpp: the named shapes.
//   tiny, small, medium   shapes for any arch and vocabulary, for laptops
//   gpt2-*                Radford et al. 2019, with the 1558M release's numbers
//   llama-1b              Llama 3.2 1B (tied, RoPE stretched 32 times)   llama-8b  Llama 3 8B   llama-13b  Llama 2 13B
//   qwen2-0.5b            Qwen2 0.5B (tied)   qwen-0.6b  Qwen3 0.6B (tied)   qwen-8b  Qwen3 8B
#include <algorithm>
#include <array>

#include <kozero/core/error.hpp>
#include <kozero/model/config.hpp>

namespace kozero::model {
namespace {

struct Shape {
  std::int64_t layers, dim, heads, kv_heads, ffn, seq;  // kv_heads, ffn 0: derived
  std::int64_t head_dim = 0;                            // 0: dim / heads
};

struct Family {
  const char* arch;  // "": the deck's
  std::int64_t vocab;
  bool tie_embeddings;
  float rope_theta;
  float norm_eps = 1e-5F;
  float rope_factor = 1.0F;
};

constexpr Family kAny{"", 0, true, 0.0F};
constexpr Family kGpt2{"gpt2", 50257, true, 10000.0F};
constexpr Family kLlama2{"llama", 32000, false, 10000.0F};
constexpr Family kLlama3{"llama", 128256, false, 500000.0F};
constexpr Family kLlama32{"llama", 128256, true, 500000.0F, 1e-5F, 32.0F};
constexpr Family kQwen2{"qwen2", 151936, true, 1000000.0F, 1e-6F};
constexpr Family kQwen3{"qwen3", 151936, false, 1000000.0F, 1e-6F};
constexpr Family kQwen3Tied{"qwen3", 151936, true, 1000000.0F, 1e-6F};

struct Preset {
  const char* name;
  Family family;
  Shape shape;
};

constexpr std::array kPresets = {
    Preset{"tiny", kAny, {4, 128, 4, 0, 0, 128}},
    Preset{"small", kAny, {6, 384, 6, 0, 0, 256}},
    Preset{"medium", kAny, {8, 512, 8, 0, 0, 512}},
    Preset{"gpt2-124m", kGpt2, {12, 768, 12, 0, 0, 1024}},
    Preset{"gpt2-350m", kGpt2, {24, 1024, 16, 0, 0, 1024}},
    Preset{"gpt2-774m", kGpt2, {36, 1280, 20, 0, 0, 1024}},
    Preset{"gpt2-1558m", kGpt2, {48, 1600, 25, 0, 0, 1024}},
    Preset{"llama-1b", kLlama32, {16, 2048, 32, 8, 8192, 8192}},
    Preset{"llama-8b", kLlama3, {32, 4096, 32, 8, 14336, 8192}},
    Preset{"llama-13b", kLlama2, {40, 5120, 40, 40, 13824, 4096}},
    Preset{"qwen2-0.5b", kQwen2, {24, 896, 14, 2, 4864, 32768}},
    Preset{"qwen-0.6b", kQwen3Tied, {28, 1024, 16, 8, 3072, 40960, 128}},
    Preset{"qwen-8b", kQwen3, {36, 4096, 32, 8, 12288, 40960, 128}},
};

[[noreturn]] void refuse(const std::string& preset) {
  const auto names = preset_names();
  std::string accepted;
  for (const auto& name : names) accepted += (accepted.empty() ? "" : ", ") + name;
  const std::string nearest = nearest_name(preset, names.data(), names.data() + names.size());
  throw Error(Failure::deck, "model.preset = \"" + preset + "\": accepted: " + accepted +
                                 (nearest.empty() ? "" : "; did you mean \"" + nearest + "\"?"));
}

}  // namespace

Config with_preset(Config config, const std::string& preset) {
  const auto same_name = [&](const Preset& candidate) { return preset == candidate.name; };
  const auto found = std::find_if(kPresets.begin(), kPresets.end(), same_name);
  if (found == kPresets.end()) refuse(preset);

  const Shape& shape = found->shape;
  config.layers = shape.layers;
  config.dim = shape.dim;
  config.heads = shape.heads;
  config.kv_heads = shape.kv_heads;
  config.head_dim = shape.head_dim;
  config.ffn = shape.ffn;
  config.seq = shape.seq;

  const Family& family = found->family;
  if (*family.arch == '\0') return config;
  config.arch = family.arch;
  config.vocab = family.vocab;
  config.tie_embeddings = family.tie_embeddings;
  config.rope_theta = family.rope_theta;
  config.norm_eps = family.norm_eps;
  config.rope_scaling = {};
  config.rope_scaling.factor = family.rope_factor;
  return config;
}

std::vector<std::string> preset_names() {
  std::vector<std::string> names;
  for (const auto& preset : kPresets) names.emplace_back(preset.name);
  return names;
}

}  // namespace kozero::model
