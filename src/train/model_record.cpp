// SPDX-FileCopyrightText: The KoZeRO authors
// SPDX-License-Identifier: Apache-2.0
// model_record.cpp: a network's shape and adapters as the JSON that checkpoints and weights files keep.
#include <nlohmann/json.hpp>

#include <kozero/core/error.hpp>
#include <kozero/train/settings.hpp>

namespace kozero::train {
namespace {

/// As a record keeps it.
template <class T>
nlohmann::ordered_json to_record(const T& value) {
  return value;
}

nlohmann::ordered_json to_record(const model::RopeScaling& scaling) {
  return {{"factor", scaling.factor},
          {"low_freq_factor", scaling.low_freq_factor},
          {"high_freq_factor", scaling.high_freq_factor},
          {"original_seq", scaling.original_seq}};
}

template <class T>
void read_record(const nlohmann::json& json, T& value) {
  json.get_to(value);
}

void read_record(const nlohmann::json& json, model::RopeScaling& scaling) {
  json.at("factor").get_to(scaling.factor);
  json.at("low_freq_factor").get_to(scaling.low_freq_factor);
  json.at("high_freq_factor").get_to(scaling.high_freq_factor);
  json.at("original_seq").get_to(scaling.original_seq);
}

nlohmann::ordered_json to_record(const model::Lora& lora) {
  return {{"rank", lora.rank}, {"alpha", lora.alpha}, {"targets", lora.targets}, {"rslora", lora.rslora}};
}

void read_record(const nlohmann::json& json, model::Lora& lora) {
  json.at("rank").get_to(lora.rank);
  json.at("alpha").get_to(lora.alpha);
  json.at("targets").get_to(lora.targets);
  json.at("rslora").get_to(lora.rslora);
}

constexpr const char* kLora = "lora";  // in a record of the model

bool is_default(const model::Field& field, bool value) { return value == field.biased; }
bool is_default(const model::Field& /*field*/, const model::RopeScaling& scaling) { return scaling.factor == 1.0F; }
template <class T>
bool is_default(const model::Field& /*field*/, const T& /*value*/) {
  return false;
}

}  // namespace

std::string model_json(const model::Config& config) {
  nlohmann::ordered_json json;
  model::for_each_field(config, [&](const model::Field& field, const auto& value) {
    if (!field.optional || !is_default(field, value)) json[field.name] = to_record(value);
  });
  if (config.lora.rank > 0) json[kLora] = to_record(config.lora);
  return json.dump();
}

model::Config config_of(const std::string& model_json, const std::string& path) {
  model::Config config;
  try {
    const auto json = nlohmann::json::parse(model_json);
    model::for_each_field(config, [&](const model::Field& field, auto& value) {
      if (!field.optional || json.contains(field.name)) read_record(json.at(field.name), value);
    });
    if (json.contains(kLora)) read_record(json.at(kLora), config.lora);
    return model::resolved(config);
  } catch (const nlohmann::json::exception& problem) {
    throw Error(Failure::input, path + ": its description of the model: " + problem.what());
  } catch (const Error& problem) {
    throw Error(Failure::input, path + ": its description of the model: " + problem.what());
  }
}

}  // namespace kozero::train
