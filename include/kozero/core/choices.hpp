// SPDX-FileCopyrightText: The KoZeRO authors
// SPDX-License-Identifier: Apache-2.0
// choices.hpp: the accepted words of keys that io, which documents them, and a layer that io does not include both use.
// (Architectures and presets: architecture.hpp, presets.hpp; precisions: precision.hpp; back ends:
// communicator.hpp.)
#pragma once
#include <array>
#include <string>
#include <vector>

namespace kozero {

inline constexpr std::array kOptimizers = {"adamw", "sgd"};
inline constexpr std::array kSchedules = {"constant", "linear", "cosine", "wsd"};
inline constexpr std::array kBatchScalings = {"none", "linear", "sqrt"};
inline constexpr std::array kAccumulations = {"ordered", "local"};        // in the order of enum zero::Accumulation
inline constexpr std::array kRecomputes = {"none", "selective", "full"};  // each stores less than the one before

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
