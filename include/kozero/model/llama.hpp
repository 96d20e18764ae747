// SPDX-FileCopyrightText: The KoZeRO authors
// SPDX-License-Identifier: Apache-2.0
// llama.hpp: Llama: RMSNorm, RoPE, grouped-query attention, SwiGLU, no biases; Hugging Face's tensor names.
// q, k and v lie as one matrix, gate and up as another. Two parts can be added: qkv_bias and qk_norm, which are what
// Qwen2 and Qwen3 have beyond Llama. Touvron et al. 2023, arXiv:2302.13971, arXiv:2307.09288.
#pragma once
#include <kozero/model/model.hpp>

namespace kozero::model {

/// ffn defaults to 8C/3, rounded up to 64. There is no dropout. For every network of Llama's family.
void resolve_llama(Config& config);

template <class Scalar>
std::unique_ptr<Model<Scalar>> make_llama(const Config& config);

}  // namespace kozero::model
