// SPDX-FileCopyrightText: The KoZeRO authors
// SPDX-License-Identifier: Apache-2.0
// config.cpp: the named presets, and the checks and defaults of a network's shape.
#include <algorithm>
#include <array>

#include <kozero/core/architecture.hpp>
#include <kozero/core/error.hpp>
#include <kozero/model/config.hpp>
#include <kozero/model/parameter_views.hpp>
#include "src/model/architectures.hpp"

namespace kozero::model {

// The named shapes.
//   tiny, small, medium   shapes for any arch and vocabulary, for laptops
//   gpt2-*                Radford et al. 2019, with the 1558M release's numbers
//   llama-1b              Llama 3.2 1B (tied, RoPE stretched 32 times)   llama-8b  Llama 3 8B   llama-13b  Llama 2 13B
//   qwen2-0.5b            Qwen2 0.5B (tied)   qwen-0.6b  Qwen3 0.6B (tied)   qwen-8b  Qwen3 8B

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

/// Throws Error(deck) with the accepted names and the nearest.
[[noreturn]] void refuse_name(const std::string& key, const std::string& given, const std::vector<std::string>& names) {
  std::string accepted;
  for (const auto& name : names) accepted += (accepted.empty() ? "" : ", ") + name;
  const std::string nearest = nearest_name(given, names.data(), names.data() + names.size());
  throw Error(Failure::deck, "model." + key + " = \"" + given + "\": accepted: " + accepted +
                                 (nearest.empty() ? "" : "; did you mean \"" + nearest + "\"?"));
}

}  // namespace

Config with_preset(Config config, const std::string& preset) {
  const auto same_name = [&](const Preset& candidate) { return preset == candidate.name; };
  const auto found = std::find_if(kPresets.begin(), kPresets.end(), same_name);
  if (found == kPresets.end()) refuse_name("preset", preset, preset_names());

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

namespace {

constexpr std::int64_t kMostTokens = (std::int64_t{1} << 31) - 1;  // token ids are 32-bit
constexpr std::int64_t kMostChannels = std::int64_t{1} << 24;      // a product of two extents stays far below 2^63

void accept_range(const std::string& key, std::int64_t value, std::int64_t least, std::int64_t most) {
  accept(value >= least && value <= most, key, value,
         "a whole number from " + std::to_string(least) + " to " + std::to_string(most));
}

void accept_extents(const Config& config) {
  accept_range("layers", config.layers, 1, 65536);
  accept_range("dim", config.dim, 1, kMostChannels);
  accept_range("heads", config.heads, 1, kMostChannels);
  accept_range("kv_heads", config.kv_heads, 0, kMostChannels);
  accept_range("head_dim", config.head_dim, 0, kMostChannels);
  accept_range("ffn", config.ffn, 0, kMostChannels);
  accept_range("vocab", config.vocab, 1, kMostTokens);
  accept_range("seq", config.seq, 1, kMostChannels);
  accept(config.vocab_block >= 0 && config.vocab_block == padded_vocabulary(config.vocab_block), "vocab_block",
         config.vocab_block, "0 (the vocabulary is one unit) and multiples of 8");
}

void accept_numbers(const Config& config) {
  const auto text = [](float value) { return std::to_string(value); };
  accept(config.dropout >= 0.0F && config.dropout < 1.0F, "dropout", text(config.dropout),
         "a number from 0 up to, but not, 1");
  accept(config.rope_theta > 0.0F, "rope_theta", text(config.rope_theta), "a number above 0");
  accept(config.norm_eps > 0.0F, "norm_eps", text(config.norm_eps), "a number above 0");
  const RopeScaling& scaling = config.rope_scaling;
  accept(scaling.factor >= 1.0F, "rope_scaling.factor", text(scaling.factor), "a number of at least 1");
  accept(scaling.low_freq_factor > 0.0F, "rope_scaling.low_freq_factor", text(scaling.low_freq_factor),
         "a number above 0");
  accept(scaling.high_freq_factor > scaling.low_freq_factor, "rope_scaling.high_freq_factor",
         text(scaling.high_freq_factor), "a number above low_freq_factor = " + text(scaling.low_freq_factor));
  accept_range("rope_scaling.original_seq", scaling.original_seq, 1, kMostChannels);
}

}  // namespace

Config resolved(Config config) {
  const Architecture* named = find_architecture(config.arch);
  if (named == nullptr) refuse_name("arch", config.arch, architectures_where([](const Architecture&) { return true; }));
  accept_extents(config);
  accept_numbers(config);
  accept(config.dropout == 0.0F || named->dropout, "dropout", std::to_string(config.dropout),
         "0 under arch " + config.arch + ", which has none");
  config.rotary = named->rotary;
  config.qkv_bias = config.qkv_bias || named->qkv_bias == Architecture::Part::always;
  config.qk_norm = config.qk_norm || named->qk_norm == Architecture::Part::always;
  network<float>(config.arch).resolve(config);
  return config;
}

}  // namespace kozero::model
