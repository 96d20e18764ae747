// SPDX-FileCopyrightText: The KoZeRO authors
// SPDX-License-Identifier: Apache-2.0
// json_excerpt.hpp: a JSON value as a message quotes it: on one line, in ASCII, of what is long only the beginning.
#pragma once
#include <string>

#include <nlohmann/json_fwd.hpp>

namespace kozero::io {

/// At most 83 characters.
std::string json_excerpt(const nlohmann::json& value);

}  // namespace kozero::io
