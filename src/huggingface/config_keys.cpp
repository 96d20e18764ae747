// SPDX-FileCopyrightText: The KoZeRO authors
// SPDX-License-Identifier: Apache-2.0
// config_keys.cpp: parses a JSON file of settings, of limited size and depth.
#include "src/huggingface/config_keys.hpp"
#include <kozero/core/error.hpp>
#include "io/posix/named_file.hpp"

namespace kozero::huggingface {

namespace {

constexpr std::int64_t kMaxConfigBytes = 4 << 20;

/// Stops the parser at a depth that no config has.
bool shallow(int depth, Json::parse_event_t /*event*/, Json& /*parsed*/) {
  if (depth > 16) throw Error(Failure::input, "nested deeper than a config is");
  return true;
}

}  // namespace

ConfigKeys parse_config_keys(const std::string& path, const std::string& text) {
  Json json;
  try {
    json = Json::parse(text, shallow, /*allow_exceptions=*/false);
  } catch (const Error& error) {
    throw Error(Failure::input, path + ": " + error.what());
  }
  if (!json.is_object()) throw Error(Failure::input, path + ": not a JSON object");
  return ConfigKeys(path, std::move(json));
}

ConfigKeys read_config_keys(const std::string& path) {
  return parse_config_keys(path, io::read_named_file(path, kMaxConfigBytes));
}

}  // namespace kozero::huggingface
