// SPDX-FileCopyrightText: The KoZeRO authors
// SPDX-License-Identifier: Apache-2.0
// error_of.hpp: the Error that a call throws, to look at; nothing where it returns.
#pragma once
#include <functional>
#include <optional>

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

}  // namespace kozero::test
