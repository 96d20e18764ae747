// SPDX-FileCopyrightText: The KoZeRO authors
// SPDX-License-Identifier: Apache-2.0
#include <kozero/io/whole_file.hpp>

#include "config_keys.hpp"

namespace kozero::exchange {
namespace {

using Json = nlohmann::json;

constexpr std::int64_t kMaxConfigBytes = 4 << 20;

/// Stops the parser where a config would nest beyond reason.
bool shallow(int depth, Json::parse_event_t /*event*/, Json& /*parsed*/) {
  if (depth > 16) throw Error(Failure::input, "nested deeper than a config is");
  return true;
}

}  // namespace

ConfigKeys read_config_keys(const std::string& path) {
  Json json;
  try {
    json = Json::parse(io::read_whole_file(path, kMaxConfigBytes), shallow, /*allow_exceptions=*/false);
  } catch (const Error& error) {
    const std::string text = error.what();
    throw Error(Failure::input, text.starts_with(path) ? text : path + ": " + text);
  }
  if (!json.is_object()) throw Error(Failure::input, path + ": not a JSON object");
  return ConfigKeys(path, std::move(json));
}

}  // namespace kozero::exchange
