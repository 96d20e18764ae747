// SPDX-FileCopyrightText: The KoZeRO authors
// SPDX-License-Identifier: Apache-2.0
// presets.hpp: the shapes that model.preset names, with the numbers of the published config.json files.
//   tiny, small, medium   sizes for any arch and vocabulary, for laptops
//   gpt2-*                Radford et al. 2019, with the 1558M release's numbers
//   llama-1b, llama-3b    Llama 3.2 (tied, RoPE scaled by 32)        llama-13b   Llama 2
//   llama-8b, llama-70b   Llama 3                                    llama3.1-*  the same with RoPE scaled by 8
//   qwen2-*, qwen2.5-*, qwen3-*   Qwen2, Qwen2.5, Qwen3
// `seq` is the length of training sequences: for Llama 3.x the length from which RoPE is scaled.
// A further preset is a row here. The header includes no Kokkos.
#pragma once
#include <algorithm>
#include <array>
#include <cstdint>
#include <string>
#include <vector>

namespace kozero {

/// The properties that presets of one release share.
struct PresetFamily {
  const char* arch;  ///< a name in architecture.hpp; "": any
  std::int64_t vocab;
  bool tie_embeddings;
  float rope_theta;
  float norm_eps = 1e-5F;
  float rope_factor = 1.0F;  ///< of Llama 3's scaling; 1: none
};

struct Preset {
  const char* name;
  PresetFamily family;
  std::int64_t layers, dim, heads, kv_heads, ffn, seq;  ///< kv_heads, ffn 0: derived
  std::int64_t head_dim = 0;                            ///< 0: dim / heads

  [[nodiscard]] bool is_for_any_arch() const { return *family.arch == '\0'; }
};

namespace preset_families {
inline constexpr PresetFamily kAny{"", 0, true, 0.0F};
inline constexpr PresetFamily kGpt2{"gpt2", 50257, true, 10000.0F};
inline constexpr PresetFamily kLlama2{"llama", 32000, false, 10000.0F};
inline constexpr PresetFamily kLlama3{"llama", 128256, false, 500000.0F};
inline constexpr PresetFamily kLlama31{"llama", 128256, false, 500000.0F, 1e-5F, 8.0F};
inline constexpr PresetFamily kLlama32{"llama", 128256, true, 500000.0F, 1e-5F, 32.0F};
inline constexpr PresetFamily kQwen2Tied{"qwen2", 151936, true, 1000000.0F, 1e-6F};
inline constexpr PresetFamily kQwen2{"qwen2", 152064, false, 1000000.0F, 1e-6F};
inline constexpr PresetFamily kQwen2Large{"qwen2", 152064, false, 1000000.0F, 1e-5F};
inline constexpr PresetFamily kQwen3{"qwen3", 151936, false, 1000000.0F, 1e-6F};
inline constexpr PresetFamily kQwen3Tied{"qwen3", 151936, true, 1000000.0F, 1e-6F};
}  // namespace preset_families

inline constexpr std::array kPresets = {
    Preset{"tiny", preset_families::kAny, 4, 128, 4, 0, 0, 128},
    Preset{"small", preset_families::kAny, 6, 384, 6, 0, 0, 256},
    Preset{"medium", preset_families::kAny, 8, 512, 8, 0, 0, 512},
    Preset{"gpt2-124m", preset_families::kGpt2, 12, 768, 12, 0, 0, 1024},
    Preset{"gpt2-350m", preset_families::kGpt2, 24, 1024, 16, 0, 0, 1024},
    Preset{"gpt2-774m", preset_families::kGpt2, 36, 1280, 20, 0, 0, 1024},
    Preset{"gpt2-1558m", preset_families::kGpt2, 48, 1600, 25, 0, 0, 1024},
    Preset{"llama-1b", preset_families::kLlama32, 16, 2048, 32, 8, 8192, 8192},
    Preset{"llama-3b", preset_families::kLlama32, 28, 3072, 24, 8, 8192, 8192},
    Preset{"llama-8b", preset_families::kLlama3, 32, 4096, 32, 8, 14336, 8192},
    Preset{"llama-13b", preset_families::kLlama2, 40, 5120, 40, 40, 13824, 4096},
    Preset{"llama-70b", preset_families::kLlama3, 80, 8192, 64, 8, 28672, 8192},
    Preset{"llama3.1-8b", preset_families::kLlama31, 32, 4096, 32, 8, 14336, 8192},
    Preset{"llama3.1-70b", preset_families::kLlama31, 80, 8192, 64, 8, 28672, 8192},
    Preset{"qwen2-0.5b", preset_families::kQwen2Tied, 24, 896, 14, 2, 4864, 32768},
    Preset{"qwen2.5-0.5b", preset_families::kQwen2Tied, 24, 896, 14, 2, 4864, 32768},
    Preset{"qwen2.5-1.5b", preset_families::kQwen2Tied, 28, 1536, 12, 2, 8960, 32768},
    Preset{"qwen2.5-3b", preset_families::kQwen2Tied, 36, 2048, 16, 2, 11008, 32768},
    Preset{"qwen2.5-7b", preset_families::kQwen2, 28, 3584, 28, 4, 18944, 32768},
    Preset{"qwen2.5-14b", preset_families::kQwen2Large, 48, 5120, 40, 8, 13824, 32768},
    Preset{"qwen2.5-32b", preset_families::kQwen2Large, 64, 5120, 40, 8, 27648, 32768},
    Preset{"qwen2.5-72b", preset_families::kQwen2Large, 80, 8192, 64, 8, 29568, 32768},
    Preset{"qwen3-0.6b", preset_families::kQwen3Tied, 28, 1024, 16, 8, 3072, 40960, 128},
    Preset{"qwen3-8b", preset_families::kQwen3, 36, 4096, 32, 8, 12288, 40960, 128},
};

inline std::vector<std::string> preset_names() {
  std::vector<std::string> names;
  for (const Preset& preset : kPresets) names.emplace_back(preset.name);
  return names;
}

/// The row with this name, or nullptr.
inline const Preset* find_preset(const std::string& name) {
  const auto same_name = [&](const Preset& preset) { return name == preset.name; };
  const auto found = std::find_if(kPresets.begin(), kPresets.end(), same_name);
  return found == kPresets.end() ? nullptr : &*found;
}

}  // namespace kozero
