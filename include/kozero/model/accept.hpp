// SPDX-FileCopyrightText: The KoZeRO authors
// SPDX-License-Identifier: Apache-2.0
// accept.hpp: refusing an impossible key of a deck's [model] with one line.
//   accept(heads > 0, "heads", heads, "a whole number above 0")
//   throws  model.heads = 0: accepted: a whole number above 0
#pragma once
#include <cstdint>
#include <string>

#include <kozero/core/error.hpp>

namespace kozero::model {

/// Throws Error(deck) naming key, value and what is accepted, where the condition does not hold.
inline void accept(bool holds, const std::string& key, const std::string& value, const std::string& accepted) {
  if (!holds) throw Error(Failure::deck, "model." + key + " = " + value + ": accepted: " + accepted);
}

inline void accept(bool holds, const std::string& key, std::int64_t value, const std::string& accepted) {
  accept(holds, key, std::to_string(value), accepted);
}

}  // namespace kozero::model
