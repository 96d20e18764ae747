// SPDX-FileCopyrightText: The KoZeRO authors
// SPDX-License-Identifier: Apache-2.0
// config_keys.hpp: a config.json asked key by key, each answer checked before anything is computed from it.
//   keys.extent("hidden_size", 4096)      a whole number from 1 to 2^24
// A key that is absent or null has its default. Every refusal is Error(input): "PATH: KEY = VALUE: accepted ...".
#pragma once
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <nlohmann/json.hpp>
#include <string>

#include <kozero/core/error.hpp>
#include "io/safetensors/header.hpp"

namespace kozero::huggingface {

inline constexpr std::int64_t kMostExtent = 1 << 24;  ///< the deck's widest

class ConfigKeys {
 public:
  ConfigKeys(std::string path, nlohmann::json json) : path_(std::move(path)), json_(std::move(json)) {}

  [[nodiscard]] bool has(const std::string& key) const { return json_.contains(key) && !json_[key].is_null(); }
  [[nodiscard]] const nlohmann::json& value(const std::string& key) const { return json_[key]; }

  [[noreturn]] void refuse(const std::string& key, const std::string& accepted) const {
    const std::string given = has(key) ? io::shown(json_[key].dump(-1, ' ', true)) : "absent";
    throw Error(Failure::input, path_ + ": " + key + " = " + given + ": " + accepted);
  }

  /// A whole number from 1 to 2^24; `silent` where the key is absent, 0 for a key that must be there.
  [[nodiscard]] std::int64_t extent(const std::string& key, std::int64_t silent) const {
    if (!has(key) && silent > 0) return silent;
    const bool fits = has(key) && json_[key].is_number_unsigned() && json_[key].get<std::uint64_t>() >= 1 &&
                      json_[key].get<std::uint64_t>() <= static_cast<std::uint64_t>(kMostExtent);
    if (!fits) refuse(key, "accepted is a whole number from 1 to " + std::to_string(kMostExtent));
    return json_[key].get<std::int64_t>();
  }

  /// As extent.
  [[nodiscard]] float positive(const std::string& key, double silent) const {
    if (!has(key) && silent > 0.0) return static_cast<float>(silent);
    const bool given = has(key) && json_[key].is_number();
    const float number = given ? static_cast<float>(json_[key].get<double>()) : 0.0F;
    if (!(number > 0.0F) || !std::isfinite(number)) refuse(key, "accepted is a number above 0");
    return number;
  }

  [[nodiscard]] bool flag(const std::string& key, bool silent) const {
    if (!has(key)) return silent;
    if (!json_[key].is_boolean()) refuse(key, "accepted are true and false");
    return json_[key].get<bool>();
  }

  [[nodiscard]] std::string word(const std::string& key, const std::string& silent) const {
    if (!has(key)) return silent;
    if (!json_[key].is_string()) refuse(key, "accepted is a text");
    return json_[key].get<std::string>();
  }

  /// Whatever the key is, it must have this value, spoken or silent.
  void want(const std::string& key, const nlohmann::json& silent, const nlohmann::json& accepted) const {
    const nlohmann::json& given = has(key) ? json_[key] : silent;
    if (given != accepted) refuse(key, "accepted is " + accepted.dump() + ", KoZeRO has no other");
  }

  /// Whether a key holds an object of its own.
  [[nodiscard]] bool holds_objects() const {
    return std::any_of(json_.begin(), json_.end(), [](const nlohmann::json& value) { return value.is_object(); });
  }

  /// The object under `key` as keys of its own.
  [[nodiscard]] ConfigKeys inside(const std::string& key) const {
    if (!json_[key].is_object()) refuse(key, "accepted is an object");
    return ConfigKeys(path_ + ": " + key, json_[key]);
  }

 private:
  std::string path_;
  nlohmann::json json_;
};

/// Reads the file. Throws Error(input) where it is no JSON object of a config's size and depth.
ConfigKeys read_config_keys(const std::string& path);

}  // namespace kozero::huggingface
