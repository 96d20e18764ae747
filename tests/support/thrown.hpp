// SPDX-FileCopyrightText: The KoZeRO authors
// SPDX-License-Identifier: Apache-2.0
// thrown.hpp: the error that a call throws, for tests that compare status and text.
#pragma once
#include <string>

#include <kozero/core/error.hpp>

namespace kozero::tests {

struct Thrown {
  int status = 0;
  std::string text;  ///< "" if nothing was thrown
};

template <class Call>
Thrown thrown_by(const Call& call) {
  try {
    call();
  } catch (const Error& error) {
    return {error.exit_status(), error.what()};
  }
  return {};
}

}  // namespace kozero::tests
