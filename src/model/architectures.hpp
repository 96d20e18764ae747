// SPDX-FileCopyrightText: The KoZeRO authors
// SPDX-License-Identifier: Apache-2.0
// architectures.hpp: how the networks that a deck can name are resolved and made: GPT-2, Llama, Qwen2, Qwen3, the
// linear demo. Each is one row in architectures.cpp; what its name implies elsewhere is its row in
// core/architecture.hpp. accept() refuses an impossible key of a deck's [model] in one line.
#pragma once
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include <kozero/core/error.hpp>
#include <kozero/model/config.hpp>
#include <kozero/model/model.hpp>

namespace kozero::model {

/// Throws Error(deck) naming key, value and what is accepted, unless the condition holds.
///   accept(heads > 0, "heads", heads, "an integer above 0")
///   throws  model.heads = 0: accepted: an integer above 0
inline void accept(bool holds, const std::string& key, const std::string& value, const std::string& accepted) {
  if (!holds) throw Error(Failure::deck, "model." + key + " = " + value + ": accepted: " + accepted);
}

inline void accept(bool holds, const std::string& key, std::int64_t value, const std::string& accepted) {
  accept(holds, key, std::to_string(value), accepted);
}

/// GPT-2: learned positions, LayerNorm, biases everywhere, GELU, dropout; Hugging Face's tensor names.
/// Radford et al. 2019, "Language models are unsupervised multitask learners".
/// ffn defaults to 4C; key/value heads are the heads.
void resolve_gpt2(Config& config);

template <class Scalar>
std::unique_ptr<Model<Scalar>> make_gpt2(const Config& config);

/// Every network of Llama's family: RMSNorm, RoPE, grouped-query attention, SwiGLU, no biases; Hugging Face's tensor
/// names. q, k and v are stored as one matrix, gate and up as another. ffn defaults to 8C/3, rounded up to 64.
/// Touvron et al. 2023, arXiv:2302.13971, arXiv:2307.09288. Qwen2 and Qwen3 add one part to the attention, by flags of
/// core/architecture.hpp.
///   qwen2 = llama with qkv_bias: biases on q, k and v                           Yang et al. 2024, arXiv:2407.10671
///   qwen3 = llama with qk_norm: an RMSNorm of each head's q and k before RoPE   Yang et al. 2025, arXiv:2505.09388
void resolve_llama(Config& config);

template <class Scalar>
std::unique_ptr<Model<Scalar>> make_llama(const Config& config);

template <class Scalar>
struct Network {
  std::string name;                 ///< model.arch
  void (*resolve)(Config& config);  ///< derives what is 0; throws Error(deck) naming the key
  std::unique_ptr<Model<Scalar>> (*make)(const Config& config);  ///< from a resolved config
};

/// The network of a name in core/architecture.hpp.
template <class Scalar>
const Network<Scalar>& network(const std::string& name);

}  // namespace kozero::model
