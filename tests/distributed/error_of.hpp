// SPDX-FileCopyrightText: The KoZeRO authors
// SPDX-License-Identifier: Apache-2.0
// error_of.hpp: the Error that a call throws; nothing if it returns.
#pragma once
#include <functional>
#include <optional>
#include <string>

#include <kozero/core/error.hpp>

namespace kozero::test {

inline std::optional<Error> error_of(const std::function<void()>& call) {
  try {
    call();
  } catch (const Error& error) {
    return error;
  }
  return std::nullopt;
}

/// The error's text without the lines that say where each rank is.
inline std::string first_line(const Error& error) {
  const std::string text = error.what();
  return text.substr(0, text.find('\n'));
}

}  // namespace kozero::test
