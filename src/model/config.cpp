// SPDX-FileCopyrightText: The KoZeRO authors
// SPDX-License-Identifier: Apache-2.0
// config.cpp: a preset's shape, and the checks and defaults of a network's shape.
#include <kozero/core/architecture.hpp>
#include <kozero/core/error.hpp>
#include <kozero/core/presets.hpp>
#include <kozero/model/config.hpp>
#include <kozero/model/parameter_views.hpp>
#include "src/model/architectures.hpp"

namespace kozero::model {

namespace {

/// Throws Error(deck) with the accepted names and the nearest.
[[noreturn]] void refuse_name(const std::string& key, const std::string& given, const std::vector<std::string>& names) {
  std::string accepted;
  for (const auto& name : names) accepted += (accepted.empty() ? "" : ", ") + name;
  const std::string nearest = nearest_name(given, names.data(), names.data() + names.size());
  throw Error(Failure::deck, "model." + key + " = \"" + given + "\": accepted: " + accepted +
                                 (nearest.empty() ? "" : "; did you mean \"" + nearest + "\"?"));
}

constexpr std::int64_t kMostTokens = (std::int64_t{1} << 31) - 1;  // token ids are 32-bit
constexpr std::int64_t kMostChannels = std::int64_t{1} << 24;      // a product of two extents stays far below 2^63

void accept_range(const std::string& key, std::int64_t value, std::int64_t least, std::int64_t most) {
  accept(value >= least && value <= most, key, value,
         "an integer from " + std::to_string(least) + " to " + std::to_string(most));
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

Config with_preset(Config config, const std::string& preset) {
  const Preset* found = find_preset(preset);
  if (found == nullptr) refuse_name("preset", preset, preset_names());
  config.layers = found->layers;
  config.dim = found->dim;
  config.heads = found->heads;
  config.kv_heads = found->kv_heads;
  config.head_dim = found->head_dim;
  config.ffn = found->ffn;
  config.seq = found->seq;
  if (found->is_for_any_arch()) return config;

  const PresetFamily& family = found->family;
  config.arch = family.arch;
  config.vocab = family.vocab;
  config.tie_embeddings = family.tie_embeddings;
  config.rope_theta = family.rope_theta;
  config.norm_eps = family.norm_eps;
  config.rope_scaling = {};
  config.rope_scaling.factor = family.rope_factor;
  return config;
}

Config resolved(Config config) {
  const Architecture* named = find_architecture(config.arch);
  if (named == nullptr) refuse_name("arch", config.arch, architectures_where([](const Architecture&) { return true; }));
  accept_extents(config);
  accept_numbers(config);
  accept(config.dropout == 0.0F || named->dropout, "dropout", std::to_string(config.dropout),
         "0 under arch " + config.arch + ", which has none");
  accept(config.bias || named->biased, "bias", "false", "true under arch " + config.arch);
  config.rotary = named->rotary;
  config.qkv_bias = config.qkv_bias || named->qkv_bias == Architecture::Part::always;
  config.qk_norm = config.qk_norm || named->qk_norm == Architecture::Part::always;
  network<float>(config.arch).resolve(config);
  return config;
}

}  // namespace kozero::model
