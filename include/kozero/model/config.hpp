// SPDX-FileCopyrightText: The KoZeRO authors
// SPDX-License-Identifier: Apache-2.0
// config.hpp: the shape of a network, with presets applied and missing keys filled in.
#pragma once
#include <cstdint>
#include <string>
#include <vector>

namespace kozero::model {

/// Llama 3's scaling of RoPE (kernels/ops/rope.hpp); factor 1: no scaling.
struct RopeScaling {
  float factor = 1.0F;
  float low_freq_factor = 1.0F;
  float high_freq_factor = 4.0F;
  std::int64_t original_seq = 8192;
  bool operator==(const RopeScaling&) const = default;
};

inline constexpr const char* kAllLinear = "all-linear";

/// Low-rank adapters of frozen linear maps (model/adapters.hpp).
/// Hu et al. 2021, "LoRA", arXiv:2106.09685; Kalajdzievski 2023, "rsLoRA", arXiv:2312.03732.
struct Lora {
  std::int64_t rank = 0;  ///< r; 0: no adapters
  float alpha = 16.0F;
  float dropout = 0.0F;                             ///< of the adapters' input
  std::vector<std::string> targets = {kAllLinear};  ///< patterns of linear maps
  bool rslora = false;                              ///< scale by alpha / sqrt(r) instead of alpha / r

  [[nodiscard]] float scale() const;
  /// Whether files of the one fit the other: all but the dropout.
  bool operator==(const Lora& other) const;
};

struct Config {
  std::string arch = "gpt2";        ///< a name in core/architecture.hpp
  std::int64_t layers = 2;          ///< L
  std::int64_t dim = 64;            ///< C; linear: inputs
  std::int64_t heads = 2;           ///< H
  std::int64_t kv_heads = 0;        ///< 0: as many as heads
  std::int64_t head_dim = 0;        ///< D; 0: dim / heads
  std::int64_t ffn = 0;             ///< hidden channels; 0: gpt2 4C, else 8C/3 rounded up to 64; linear: outputs
  std::int64_t vocab = 256;         ///< V
  std::int64_t seq = 64;            ///< T
  std::int64_t vocab_block = 0;     ///< rows of the vocabulary per unit; 0: all rows in one unit
  std::int64_t blocks_in_unit = 1;  ///< transformer blocks per unit; the last unit may have fewer
  bool tie_embeddings = true;
  float dropout = 0.0F;
  float rope_theta = 10000.0F;
  RopeScaling rope_scaling = {};
  Lora lora = {};
  float norm_eps = 1e-5F;
  bool bias = true;                      ///< gpt2: biases of all linear maps and norms
  bool qkv_bias = false;                 ///< biases on q, k and v; resolved to true where arch always has them
  bool qk_norm = false;                  ///< RMSNorm of each q and k head; resolved likewise
  bool rotary = false;                   ///< RoPE; resolved from arch
  std::uint64_t seed = 1;                ///< names the dropout streams and the linear demo's teacher
  std::vector<std::string> freeze = {};  ///< patterns of the tensors that are not trained (frozen_tensors.hpp)
};

/// A field of a Config that files store.
struct Field {
  const char* name;       ///< in decks ("model.NAME") and checkpoint records
  bool optional = false;  ///< omitted from a record if it has its default
  bool rotary = false;    ///< for architectures with RoPE only
  bool biased = false;    ///< for architectures with biases only; the default is true
  bool linear = false;    ///< the linear demo has the field too
};

/// Calls visit(field, member) for every field of the network itself that files store, in their order: all fields but
/// the adapters, the dropout, the seed, the blocks per unit, the frozen tensors (no file depends on these) and the
/// fields that follow from arch. A new field
/// needs a line here, a row of the deck's schema, and the code that computes with the field.
template <class AnyConfig, class Visit>
void for_each_field(AnyConfig& config, const Visit& visit) {
  visit(Field{.name = "arch", .linear = true}, config.arch);
  visit(Field{.name = "layers"}, config.layers);
  visit(Field{.name = "dim", .linear = true}, config.dim);
  visit(Field{.name = "heads"}, config.heads);
  visit(Field{.name = "kv_heads", .rotary = true}, config.kv_heads);
  visit(Field{.name = "head_dim", .rotary = true}, config.head_dim);
  visit(Field{.name = "ffn", .linear = true}, config.ffn);
  visit(Field{.name = "vocab"}, config.vocab);
  visit(Field{.name = "seq"}, config.seq);
  visit(Field{.name = "tie_embeddings"}, config.tie_embeddings);
  visit(Field{.name = "rope_theta", .rotary = true}, config.rope_theta);
  visit(Field{.name = "norm_eps"}, config.norm_eps);
  visit(Field{.name = "bias", .optional = true, .biased = true}, config.bias);
  visit(Field{.name = "qkv_bias", .optional = true, .rotary = true}, config.qkv_bias);
  visit(Field{.name = "qk_norm", .optional = true, .rotary = true}, config.qk_norm);
  visit(Field{.name = "rope_scaling", .optional = true, .rotary = true}, config.rope_scaling);
}

/// The config with every 0 that means "derived" replaced. Throws Error(deck) naming the key where shapes do not divide
/// (dim by heads, heads by kv_heads, odd head_dim under RoPE) or arch is unknown.
Config resolved(Config config);

/// Replaces `config`'s layers, dim, heads, kv_heads, ffn, vocab, seq and so on by a preset's ("tiny", "gpt2-124m",
/// "llama-1b" ...; core/presets.hpp). Throws Error(deck) with the accepted names and the nearest name.
Config with_preset(Config config, const std::string& preset);

}  // namespace kozero::model
