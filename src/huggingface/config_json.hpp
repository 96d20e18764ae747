// SPDX-FileCopyrightText: The KoZeRO authors
// SPDX-License-Identifier: Apache-2.0
// config_json.hpp: Hugging Face's config.json <-> a network's shape, for the model types with a row in config_json.cpp.
// Reading accepts the old form and the new (rope_theta and rope_scaling | rope_parameters, torch_dtype | dtype). Every
// key that would change the logits and is not supported (an activation, a bias, a RoPE scaling other than Llama 3's, a
// sliding window, is_causal) is rejected by name; docs/weights.md has the list. Numbers are written as the shortest
// decimals that round to the same float.
#pragma once
#include <array>
#include <charconv>
#include <string>
#include <vector>

#include <kozero/model/config.hpp>

namespace kozero::huggingface {

/// Throws Error(input): "PATH: KEY = VALUE: accepted ...". `notes` gets a line for what is in the file and not used: a
/// second rope_theta, and keys that the network of transformers does not have either.
model::Config read_config(const std::string& path, std::vector<std::string>* notes = nullptr);

/// config.json for transformers, in both forms. `end_of_text`: the id that begins and ends documents, or -1.
/// `dtype` names the stored weights' type as transformers does.
/// The type follows from the parts: Llama with qkv_bias is written as qwen2, with qk_norm as qwen3.
/// Throws Error(deck) if Hugging Face has no such network (arch linear, both parts at once).
std::string config_text(const model::Config& config, int end_of_text, const std::string& dtype = "float32");

/// model_type in that config.json. Throws like config_text.
const std::string& exported_type(const model::Config& config);

/// The names of an architecture's tensors in transformers' files.
struct TensorNames {
  std::string prefix;                ///< before the table's names, but not before lm_head's
  std::vector<std::string> buffers;  ///< constants that old versions stored; * is the number of a block
  bool inputs_first = false;         ///< a block's linear maps are stored as (I, O), not as (O, I)
};

/// Throws Error(deck) if Hugging Face has no such network.
const TensorNames& tensor_names(const model::Config& config);

/// The double that prints as a float's shortest decimal: 1e-5F -> 1e-5, not 9.99999974737875e-06.
/// It rounds to the same float again, so a text keeps the value.      Steele, White, PLDI 1990.
inline double shortest(float value) {
  std::array<char, 32> text{};
  const auto written = std::to_chars(text.data(), text.data() + text.size(), value);
  double number = 0.0;
  std::from_chars(text.data(), written.ptr, number);
  return number;
}

}  // namespace kozero::huggingface
