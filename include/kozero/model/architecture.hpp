// SPDX-FileCopyrightText: The KoZeRO authors
// SPDX-License-Identifier: Apache-2.0
// architecture.hpp: the list of networks a deck can name.
// A further network is one file with its two functions, and its line in src/model/architecture.cpp.
#pragma once
#include <memory>
#include <string>
#include <vector>

#include <kozero/model/model.hpp>

namespace kozero::model {

template <class Scalar>
struct Architecture {
  std::string name;                                           ///< model.arch
  void (*resolve)(Config& config);                            ///< derives what is 0; throws Error(deck) naming the key
  std::unique_ptr<Model<Scalar>> (*make)(const Config& config);  ///< from a resolved config
};

template <class Scalar>
const std::vector<Architecture<Scalar>>& architectures();

/// Throws Error(deck) "model.KEY = VALUE: accepted ..." where the condition does not hold.
void accept(bool holds, const std::string& key, const std::string& value, const std::string& accepted);
void accept(bool holds, const std::string& key, std::int64_t value, const std::string& accepted);

/// The shape of attention: derives kv_heads and head_dim, and checks that heads divide.
void resolve_heads(Config& config);

}  // namespace kozero::model
