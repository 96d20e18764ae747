// SPDX-FileCopyrightText: The KoZeRO authors
// SPDX-License-Identifier: Apache-2.0
// config_json.hpp: Hugging Face's config.json <-> a network's shape, for model_type gpt2, llama, qwen2, qwen3.
// Reading takes the old form and the new (rope_theta and rope_scaling | rope_parameters, torch_dtype | dtype). Whatever
// would change the logits and is not KoZeRO's (an activation, a bias, a RoPE scaling other than Llama 3's, a sliding
// window) is refused by its key, never passed over.
#pragma once
#include <string>

#include <kozero/model/config.hpp>

namespace kozero::exchange {

/// Throws Error(input): "PATH: KEY = VALUE: accepted ...".
model::Config read_config(const std::string& path);

/// config.json for transformers, in both forms. `end_of_text`: the id that begins and ends documents, or -1.
/// `dtype` names the stored weights' type as transformers does.
/// The type is what the parts make: Llama with qkv_bias is written as qwen2, with qk_norm as qwen3.
/// Throws Error(deck) where Hugging Face has no such network (arch linear, both parts at once).
std::string config_text(const model::Config& config, int end_of_text, const std::string& dtype = "float32");

}  // namespace kozero::exchange
