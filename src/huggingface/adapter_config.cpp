// SPDX-FileCopyrightText: The KoZeRO authors
// SPDX-License-Identifier: Apache-2.0
// adapter_config.cpp: reads and writes PEFT's adapter_config.json.
#include <algorithm>
#include <array>
#include <nlohmann/json.hpp>
#include <set>
#include <string_view>

#include <kozero/core/error.hpp>
#include "io/deck/schema.hpp"
#include "src/huggingface/adapter_config.hpp"
#include "src/huggingface/config_json.hpp"
#include "src/huggingface/config_keys.hpp"

namespace kozero::huggingface {

namespace {

using OrderedJson = nlohmann::ordered_json;

/// Keys that parse_adapter_config reads.
constexpr std::array<std::string_view, 9> kRead = {
    "peft_type",      "r",    "lora_alpha",        "lora_dropout", "use_rslora",
    "target_modules", "bias", "init_lora_weights", "task_type"};

/// Keys of which neither the adapters nor their outputs depend. fan_in_fan_out is one, since PEFT corrects it by the
/// module; qalora_group_size is read with use_qalora alone.
constexpr std::array<std::string_view, 9> kWithoutEffect = {
    "auto_mapping",   "base_model_name_or_path", "inference_mode", "megatron_core",      "peft_version",
    "fan_in_fan_out", "qalora_group_size",       "revision",       "ensure_weight_tying"};

template <std::size_t Count>
bool contains(const std::array<std::string_view, Count>& names, const std::string& name) {
  return std::ranges::find(names, name) != names.end();
}

bool is_end_of(const std::string& name, const std::string& module) {
  return module == name || module.ends_with("." + name);
}

/// `unused` gets the names of which there is no module.
std::vector<std::string> read_targets(const ConfigKeys& keys, const std::vector<std::string>& modules,
                                      std::vector<std::string>& unused) {
  const Json given = keys.has("target_modules") ? keys.value("target_modules") : Json();
  const bool is_list =
      given.is_array() && std::ranges::all_of(given, [](const Json& each) { return each.is_string(); });
  if (!given.is_string() && !is_list) keys.refuse("target_modules", "accepted is a text or a list of texts");
  if (given.is_string()) return given == model::kAllLinear ? std::vector<std::string>{model::kAllLinear} : modules;
  std::vector<std::string> targets;
  for (const Json& each : given) {
    const auto name = each.get<std::string>();
    const bool is_there = std::ranges::any_of(modules, [&](const auto& module) { return is_end_of(name, module); });
    is_there ? targets.push_back(name) : unused.push_back(io::shown(name));
  }
  if (targets.empty()) keys.refuse("target_modules", "accepted are ends of the names of the adapters' modules");
  return targets;
}

/// A fraction of [0, 1).
float read_dropout(const ConfigKeys& keys) {
  if (!keys.has("lora_dropout") || keys.value("lora_dropout") == 0.0) return 0.0F;
  const float dropout = keys.positive("lora_dropout", 0.0);
  if (dropout >= 1.0F) keys.refuse("lora_dropout", "accepted is a number from 0 to below 1");
  return dropout;
}

/// Throws unless every key that is not read changes nothing.
void check_other_keys(const ConfigKeys& keys) {
  for (const std::string& name : keys.names()) {
    if (contains(kRead, name) || contains(kWithoutEffect, name) || ConfigKeys::changes_nothing(keys.value(name)))
      continue;
    keys.refuse(io::shown(name), "KoZeRO's adapters do not have it; accepted is a value that changes nothing, as null");
  }
  keys.want("bias", "none", "none");
  // PiSSA, OLoRA, CorDA and EVA change the base too.
  const Json start = keys.has("init_lora_weights") ? keys.value("init_lora_weights") : Json(true);
  if (!start.is_boolean() && start != "gaussian" && start != "orthogonal") {
    keys.refuse("init_lora_weights", "accepted are true, false, \"gaussian\", \"orthogonal\", which leave the base");
  }
  const std::string task = keys.word("task_type", "CAUSAL_LM");
  if (task != "CAUSAL_LM") keys.refuse("task_type", "accepted is \"CAUSAL_LM\"");
}

/// The end of `module` that has `parts` names.
std::string end_of(const std::string& module, int parts) {
  std::size_t begin = module.size() + 1;
  for (; parts > 0 && begin > 1; --parts) {
    const std::size_t dot = module.rfind('.', begin - 2);
    begin = dot == std::string::npos ? 0 : dot + 1;
  }
  return module.substr(begin);
}

}  // namespace

AdapterConfig parse_adapter_config(const std::string& path, const std::string& text,
                                   const std::vector<std::string>& modules) {
  const ConfigKeys keys = parse_config_keys(path, text);
  keys.want("peft_type", nullptr, "LORA");
  check_other_keys(keys);
  AdapterConfig config;
  config.lora.rank = keys.extent("r", 8);
  config.lora.alpha = keys.positive("lora_alpha", 8.0);
  config.lora.dropout = read_dropout(keys);
  config.lora.rslora = keys.flag("use_rslora", false);
  std::vector<std::string> unused;
  config.lora.targets = read_targets(keys, modules, unused);
  if (!unused.empty()) {
    config.note = path + ": target_modules has " + io::joined(unused) + ", of which the adapters have no tensors";
  }
  config.base = keys.word("base_model_name_or_path", "");
  return config;
}

std::string adapter_config_text(const AdapterConfig& config, const std::vector<std::string>& targets,
                                bool inputs_first) {
  const model::Lora& lora = config.lora;
  const OrderedJson nothing = nullptr;
  const OrderedJson none = OrderedJson::object();
  const OrderedJson json = {
      {"alpha_pattern", none},
      {"auto_mapping", nothing},
      {"base_model_name_or_path", config.base.empty() ? nothing : OrderedJson(config.base)},
      {"bias", "none"},
      {"corda_config", nothing},
      {"eva_config", nothing},
      {"exclude_modules", nothing},
      {"fan_in_fan_out", inputs_first},
      {"inference_mode", true},
      {"init_lora_weights", true},
      {"layer_replication", nothing},
      {"layers_pattern", nothing},
      {"layers_to_transform", nothing},
      {"loftq_config", none},
      {"lora_alpha", shortest(lora.alpha)},
      {"lora_bias", false},
      {"lora_dropout", shortest(lora.dropout)},
      {"megatron_config", nothing},
      {"megatron_core", "megatron.core"},
      {"modules_to_save", nothing},
      {"peft_type", "LORA"},
      {"r", lora.rank},
      {"rank_pattern", none},
      {"revision", nothing},
      {"target_modules", targets},
      {"target_parameters", nothing},
      {"task_type", "CAUSAL_LM"},
      {"trainable_token_indices", nothing},
      {"use_dora", false},
      {"use_rslora", lora.rslora},
  };
  return json.dump(2) + "\n";
}

std::vector<std::string> target_modules(const std::vector<std::string>& chosen,
                                        const std::vector<std::string>& others) {
  std::set<std::string> targets;
  for (const std::string& module : chosen) {
    const auto is_of_another = [&](const std::string& end) {
      return std::ranges::any_of(others, [&](const std::string& other) { return is_end_of(end, other); });
    };
    int parts = 1;
    while (is_of_another(end_of(module, parts)) && end_of(module, parts) != module) ++parts;
    targets.insert(end_of(module, parts));
  }
  return {targets.begin(), targets.end()};
}

}  // namespace kozero::huggingface
