// SPDX-FileCopyrightText: The KoZeRO authors
// SPDX-License-Identifier: Apache-2.0
// qwen.hpp: Qwen2 and Qwen3: Llama's network with one part more in its attention.
//   qwen2 = llama with qkv_bias: biases on q, k and v                           Yang et al. 2024, arXiv:2407.10671
//   qwen3 = llama with qk_norm: an RMSNorm of each head's q and k before RoPE   Yang et al. 2025, arXiv:2505.09388
// make_llama makes both.
#pragma once
#include <kozero/model/config.hpp>

namespace kozero::model {

void resolve_qwen2(Config& config);
void resolve_qwen3(Config& config);

}  // namespace kozero::model
