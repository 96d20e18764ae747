// SPDX-FileCopyrightText: The KoZeRO authors
// SPDX-License-Identifier: Apache-2.0
// inspect_difference.hpp: inspect --diff: where two checkpoints or weights files differ.
//   what their records say differently; tensors that one lacks; of each tensor that differs its first element that
//   does, both values, how many differ and by how much at most
#pragma once
#include <cstdint>
#include <string>
#include <vector>

#include <nlohmann/json.hpp>

#include "inspected.hpp"

namespace kozero::commands {

struct Comparison {
  std::vector<std::string> lines;
  nlohmann::ordered_json json;
  std::int64_t tensors = 0;    ///< that either has
  std::int64_t different = 0;  ///< of them, in bits, shape or presence; records do not count
};

/// Of the tensors whose names `pattern` fits, all where it is empty. Collective.
/// Throws Error(input), seen by all ranks.
Comparison compared(const Inspected& a, const Inspected& b, const std::string& pattern, dist::Communicator& comm);

}  // namespace kozero::commands
