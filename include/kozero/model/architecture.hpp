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

}  // namespace kozero::model
