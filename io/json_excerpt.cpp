// SPDX-FileCopyrightText: The KoZeRO authors
// SPDX-License-Identifier: Apache-2.0
#include <nlohmann/json.hpp>

#include <kozero/io/json_excerpt.hpp>

namespace kozero::io {

std::string json_excerpt(const nlohmann::json& value) {
  constexpr std::size_t kShown = 80;
  std::string all = value.dump(-1, ' ', true);
  if (all.size() > kShown) all.replace(kShown, std::string::npos, "...");
  return all;
}

}  // namespace kozero::io
