// SPDX-FileCopyrightText: The KoZeRO authors
// SPDX-License-Identifier: Apache-2.0
// choices.hpp: the names of optimizers, schedules and batch scalings. optim and io, which do not include each other,
// both use them. (Architectures and presets: architecture.hpp, presets.hpp; back ends: communicator.hpp.)
#pragma once
#include <array>
#include <string>
#include <vector>

namespace kozero {

inline constexpr std::array kOptimizers = {"adamw", "sgd"};
inline constexpr std::array kSchedules = {"constant", "linear", "cosine", "wsd"};
inline constexpr std::array kBatchScalings = {"none", "linear", "sqrt"};

template <class Names>
std::vector<std::string> all_of(const Names& names) {
  return {names.begin(), names.end()};
}

/// "adamw, sgd"
template <class Names>
std::string list_of(const Names& names) {
  std::string text;
  for (const auto& name : names) text += (text.empty() ? "" : ", ") + std::string(name);
  return text;
}

}  // namespace kozero
