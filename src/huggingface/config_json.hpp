// SPDX-FileCopyrightText: The KoZeRO authors
// SPDX-License-Identifier: Apache-2.0
// config_json.hpp: Hugging Face's config.json and a model's shape. Numbers are written as the shortest decimals that
// round to the same float.
#pragma once
#include <array>
#include <charconv>
#include <string>
#include <vector>

#include <kozero/model/config.hpp>

namespace kozero::huggingface {

// Hugging Face's config.json <-> a network's shape, for the model types that config_json.cpp has a row for.
// Reading takes the old form and the new (rope_theta and rope_scaling | rope_parameters, torch_dtype | dtype). Whatever
// would change the logits and is not KoZeRO's (an activation, a bias, a RoPE scaling other than Llama 3's, a sliding
// window) is refused by its key, never passed over.

/// Throws Error(input): "PATH: KEY = VALUE: accepted ...".
model::Config read_config(const std::string& path);

/// config.json for transformers, in both forms. `end_of_text`: the id that begins and ends documents, or -1.
/// `dtype` names the stored weights' type as transformers does.
/// The type is what the parts make: Llama with qkv_bias is written as qwen2, with qk_norm as qwen3.
/// Throws Error(deck) where Hugging Face has no such network (arch linear, both parts at once).
std::string config_text(const model::Config& config, int end_of_text, const std::string& dtype = "float32");

/// model_type in that config.json. Throws as config_text.
const std::string& exported_type(const model::Config& config);

/// How transformers' files name the tensors of an architecture.
struct TensorNames {
  std::string prefix;                ///< before the table's names, but not before lm_head's
  std::vector<std::string> buffers;  ///< constants that old versions stored; * is the number of a block
};

/// Throws Error(deck) where Hugging Face has no such network.
const TensorNames& tensor_names(const model::Config& config);

// The double that prints as a float's shortest decimal: 1e-5F -> 1e-5, not 9.99999974737875e-06.
// It rounds to the same float again, so nothing is lost on the way through a text.      Steele, White, PLDI 1990.

inline double shortest(float value) {
  std::array<char, 32> text{};
  const auto written = std::to_chars(text.data(), text.data() + text.size(), value);
  double number = 0.0;
  std::from_chars(text.data(), written.ptr, number);
  return number;
}

}  // namespace kozero::huggingface
