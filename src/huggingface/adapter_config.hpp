// SPDX-FileCopyrightText: The KoZeRO authors
// SPDX-License-Identifier: Apache-2.0
// adapter_config.hpp: PEFT's adapter_config.json <-> the adapters of model.lora.
// A key that KoZeRO does not have is accepted only with a value that changes nothing: null, false, {} or []. Every
// other value is rejected by the key's name. Hugging Face's PEFT: github.com/huggingface/peft.
#pragma once
#include <string>
#include <vector>

#include <kozero/model/config.hpp>

namespace kozero::huggingface {

inline constexpr const char* kAdapterConfig = "adapter_config.json";
inline constexpr const char* kAdapterFile = "adapter_model.safetensors";

struct AdapterConfig {
  model::Lora lora;
  std::string base;       ///< base_model_name_or_path, "" if it is null
  std::string note = {};  ///< the names in target_modules that are no module's; "": none
};

/// `modules`: the linear maps with adapters, by their names in transformers. A list of target_modules becomes
/// lora.targets, without the names of none of them, which `note` has; for an expression the targets are `modules`.
/// Throws Error(input): "PATH: KEY = VALUE: accepted ...".
AdapterConfig parse_adapter_config(const std::string& path, const std::string& text,
                                   const std::vector<std::string>& modules);

/// `targets`: target_modules. `inputs_first`: the linear maps are stored as (I, O), PEFT's fan_in_fan_out.
std::string adapter_config_text(const AdapterConfig& config, const std::vector<std::string>& targets,
                                bool inputs_first);

/// The shortest ends of names that are ends of all of `chosen` and of no other module: PEFT's target_modules.
///   all q_proj: {"q_proj"}       c_proj of attn alone: {"attn.c_proj"}
std::vector<std::string> target_modules(const std::vector<std::string>& chosen, const std::vector<std::string>& others);

}  // namespace kozero::huggingface
