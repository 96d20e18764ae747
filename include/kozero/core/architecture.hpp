// SPDX-FileCopyrightText: The KoZeRO authors
// SPDX-License-Identifier: Apache-2.0
// architecture.hpp: properties of a network that follow from its name (model.arch), for its deck, shape and files.
// A further network is a row here, a row in src/model/architectures.cpp with its two functions in a file of their own,
// and, if transformers has it, a row in src/huggingface/config_json.cpp. The header includes no Kokkos.
#pragma once
#include <algorithm>
#include <array>
#include <cstdint>
#include <string>
#include <vector>

#include <kozero/core/error.hpp>

namespace kozero {

struct Architecture {
  enum class Part : std::uint8_t { never, optional, always };

  const char* name;             ///< model.arch
  const char* prefix = "";      ///< that transformers puts before most tensor names
  bool decoder = true;          ///< a stack of transformer blocks over tokens; false: generates its own data
  bool rotary = false;          ///< positions by RoPE; kv_heads and head_dim may be set (Llama's family)
  bool dropout = false;         ///< accepts model.dropout
  bool biased = false;          ///< biases of all linear maps and norms, unless model.bias is false
  bool tie_embeddings = false;  ///< default of model.tie_embeddings
  Part qkv_bias = Part::never;  ///< model.qkv_bias: biases on q, k and v, if others have none
  Part qk_norm = Part::never;   ///< model.qk_norm: RMSNorm of each q and k head
  /// the published split (io/text/pretokenizer.hpp) that transformers gives its tokenizer, whatever the tokenizer's
  /// file says; "": the file's
  const char* split = "";
};

inline constexpr std::array kArchitectures = {
    Architecture{.name = "gpt2", .prefix = "transformer.", .dropout = true, .biased = true, .tie_embeddings = true},
    Architecture{.name = "llama",
                 .prefix = "model.",
                 .rotary = true,
                 .qkv_bias = Architecture::Part::optional,
                 .qk_norm = Architecture::Part::optional},
    Architecture{.name = "qwen2",
                 .prefix = "model.",
                 .rotary = true,
                 .qkv_bias = Architecture::Part::always,
                 .split = "Qwen 2 and 3"},
    Architecture{.name = "qwen3", .prefix = "model.", .rotary = true, .qk_norm = Architecture::Part::always},
    Architecture{.name = "linear", .decoder = false},
};

/// The names of the architectures for which holds(architecture) is true, in the table's order.
template <class Holds>
std::vector<std::string> architectures_where(const Holds& holds) {
  std::vector<std::string> names;
  for (const Architecture& architecture : kArchitectures) {
    if (holds(architecture)) names.emplace_back(architecture.name);
  }
  return names;
}

/// The row with this name, or nullptr.
inline const Architecture* find_architecture(const std::string& name) {
  const auto same_name = [&](const Architecture& architecture) { return name == architecture.name; };
  const auto found = std::find_if(kArchitectures.begin(), kArchitectures.end(), same_name);
  return found == kArchitectures.end() ? nullptr : &*found;
}

/// The row with this name. Throws Error(internal) for an unknown name.
inline const Architecture& architecture(const std::string& name) {
  const Architecture* found = find_architecture(name);
  require(found != nullptr, "no architecture " + name);
  return *found;
}

}  // namespace kozero
