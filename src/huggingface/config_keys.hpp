// SPDX-FileCopyrightText: The KoZeRO authors
// SPDX-License-Identifier: Apache-2.0
// config_keys.hpp: a JSON file of settings (config.json, adapter_config.json) read key by key.
#pragma once
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <nlohmann/json.hpp>
#include <set>
#include <string>
#include <vector>

#include <kozero/core/error.hpp>
#include "io/safetensors/header.hpp"

namespace kozero::huggingface {

using Json = nlohmann::json;

inline constexpr std::int64_t kMostExtent = 1 << 24;  ///< the deck's widest

/// A JSON object whose values are checked before their use.
///   keys.extent("hidden_size", 4096)      an integer from 1 to 2^24
/// A key that is absent or null has its default. Every refusal is Error(input): "PATH: KEY = VALUE: accepted ...".
class ConfigKeys {
 public:
  ConfigKeys(std::string path, Json json) : path_(std::move(path)), json_(std::move(json)) {}

  [[nodiscard]] bool has(const std::string& key) const {
    asked_.insert(key);
    return json_.contains(key) && !json_[key].is_null();
  }
  [[nodiscard]] const Json& value(const std::string& key) const { return json_[key]; }

  [[nodiscard]] std::vector<std::string> names() const {
    std::vector<std::string> names;
    for (const auto& [name, value] : json_.items()) names.push_back(name);
    return names;
  }

  /// The keys that no call has asked for.
  [[nodiscard]] std::vector<std::string> unread_names() const {
    std::vector<std::string> unread = names();
    std::erase_if(unread, [&](const std::string& name) { return asked_.contains(name); });
    return unread;
  }

  [[noreturn]] void refuse(const std::string& key, const std::string& accepted) const {
    const std::string given = has(key) ? io::shown(json_[key].dump(-1, ' ', true)) : "absent";
    throw Error(Failure::input, path_ + ": " + key + " = " + given + ": " + accepted);
  }

  /// An integer from 1 to 2^24; `otherwise` if the key is absent. `otherwise` = 0: the key is required.
  [[nodiscard]] std::int64_t extent(const std::string& key, std::int64_t otherwise) const {
    if (!has(key) && otherwise > 0) return otherwise;
    const bool fits = has(key) && json_[key].is_number_unsigned() && json_[key].get<std::uint64_t>() >= 1 &&
                      json_[key].get<std::uint64_t>() <= static_cast<std::uint64_t>(kMostExtent);
    if (!fits) refuse(key, "accepted is an integer from 1 to " + std::to_string(kMostExtent));
    return json_[key].get<std::int64_t>();
  }

  /// A positive number; `otherwise` like extent().
  [[nodiscard]] float positive(const std::string& key, double otherwise) const {
    if (!has(key) && otherwise > 0.0) return static_cast<float>(otherwise);
    const bool given = has(key) && json_[key].is_number();
    const float number = given ? static_cast<float>(json_[key].get<double>()) : 0.0F;
    if (!(number > 0.0F) || !std::isfinite(number)) refuse(key, "accepted is a number above 0");
    return number;
  }

  [[nodiscard]] bool flag(const std::string& key, bool otherwise) const {
    if (!has(key)) return otherwise;
    if (!json_[key].is_boolean()) refuse(key, "accepted are true and false");
    return json_[key].get<bool>();
  }

  [[nodiscard]] std::string word(const std::string& key, const std::string& otherwise) const {
    if (!has(key)) return otherwise;
    if (!json_[key].is_string()) refuse(key, "accepted is a text");
    return json_[key].get<std::string>();
  }

  /// The key, or `otherwise` if it is absent, must have the accepted value.
  void want(const std::string& key, const Json& otherwise, const Json& accepted) const {
    const Json& given = has(key) ? json_[key] : otherwise;
    if (given != accepted) refuse(key, "accepted is " + accepted.dump() + ", KoZeRO has no other");
  }

  /// The key must be absent, null, false or empty.
  void want_nothing(const std::string& key) const {
    if (!has(key) || changes_nothing(json_[key])) return;
    refuse(key, "accepted is null, KoZeRO has no other");
  }

  [[nodiscard]] static bool changes_nothing(const Json& value) {
    return value.is_null() || value == false || (value.is_structured() && value.empty());
  }

  /// Whether the value of some key is an object.
  [[nodiscard]] bool holds_objects() const {
    return std::any_of(json_.begin(), json_.end(), [](const Json& value) { return value.is_object(); });
  }

  /// The keys of the object under `key`.
  [[nodiscard]] ConfigKeys inside(const std::string& key) const {
    if (!json_[key].is_object()) refuse(key, "accepted is an object");
    return ConfigKeys(path_ + ": " + key, json_[key]);
  }

 private:
  std::string path_;
  Json json_;
  mutable std::set<std::string> asked_;
};

/// Reads the file. Throws Error(input) unless it is a JSON object of a config's size and depth.
ConfigKeys read_config_keys(const std::string& path);

/// The same from a text; `path` is for messages.
ConfigKeys parse_config_keys(const std::string& path, const std::string& text);

}  // namespace kozero::huggingface
