// SPDX-FileCopyrightText: The KoZeRO authors
// SPDX-License-Identifier: Apache-2.0
// frozen_tensors.cpp: matches patterns of optim.freeze with tensor names.
#include <fnmatch.h>
#include <algorithm>
#include <string_view>
#include <vector>

#include <kozero/core/architecture.hpp>
#include <kozero/core/error.hpp>
#include "src/model/frozen_tensors.hpp"

namespace kozero::model {
namespace {

/// The tensor's name with and without the prefix, which an untied head does not have.
std::vector<std::string> names_of(const std::string& prefix, const std::string& tensor) {
  if (prefix.empty() || tensor.starts_with("lm_head.")) return {tensor};
  return {tensor, tensor.starts_with(prefix) ? tensor.substr(prefix.size()) : prefix + tensor};
}

bool matches(const std::string& pattern, const std::string& prefix, const std::string& tensor) {
  return std::ranges::any_of(names_of(prefix, tensor), [&](const std::string& name) {
    return ::fnmatch(pattern.c_str(), name.c_str(), FNM_NOESCAPE) == 0;
  });
}

[[noreturn]] void refuse_pattern(const ParameterTable& table, const std::string& prefix, const std::string& pattern) {
  std::vector<std::string> accepted;
  for (const Tensor& tensor : table.tensors()) {
    for (const std::string& name : names_of(prefix, tensor.name)) {
      accepted.push_back(name);
      for (std::size_t dot = name.find('.'); dot != std::string::npos; dot = name.find('.', dot + 1)) {
        accepted.push_back(name.substr(0, dot) + ".*");
      }
    }
  }
  const std::string nearest = nearest_name(pattern, accepted.data(), accepted.data() + accepted.size());
  throw Error(Failure::deck, "optim.freeze: \"" + pattern + "\" is the name of no tensor; " +
                                 (nearest.empty() ? "accepted are names such as \"" + accepted.front() + "\""
                                                  : "did you mean \"" + nearest + "\"?"));
}

}  // namespace

bool is_frozen(const Config& config, const std::string& tensor) {
  const std::string prefix = architecture(config.arch).prefix;
  return std::ranges::any_of(config.freeze,
                             [&](const std::string& pattern) { return matches(pattern, prefix, tensor); });
}

void freeze_tensors(ParameterTable& table, const Config& config) {
  const std::string prefix = architecture(config.arch).prefix;
  for (const std::string& pattern : config.freeze) {
    bool found = false;
    for (int tensor = 0; tensor < std::ssize(table.tensors()); ++tensor) {
      if (!matches(pattern, prefix, table.tensors()[static_cast<std::size_t>(tensor)].name)) continue;
      table.freeze(tensor);
      found = true;
    }
    if (!found) refuse_pattern(table, prefix, pattern);
  }
  if (table.num_trainable() == 0) {
    throw Error(Failure::deck, "optim.freeze: no tensor is left to train; accepted are patterns that leave one");
  }
}

}  // namespace kozero::model
