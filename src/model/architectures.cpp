// SPDX-FileCopyrightText: The KoZeRO authors
// SPDX-License-Identifier: Apache-2.0
// architectures.cpp: the table of networks, and the model that a shape names.
#include "src/model/architectures.hpp"
#include <kozero/core/error.hpp>
#include <kozero/core/precision.hpp>
#include "src/model/linear_demo.hpp"

namespace kozero::model {

template <class Scalar>
const Network<Scalar>& network(const std::string& name) {
  static const std::vector<Network<Scalar>> networks = {
      {"gpt2", resolve_gpt2, make_gpt2<Scalar>},       {"llama", resolve_llama, make_llama<Scalar>},
      {"qwen2", resolve_llama, make_llama<Scalar>},    {"qwen3", resolve_llama, make_llama<Scalar>},
      {"linear", resolve_linear, make_linear<Scalar>},
  };
  for (const Network<Scalar>& each : networks) {
    if (each.name == name) return each;
  }
  throw Error(Failure::internal, "model: architecture " + name + " has no network");
}

template <class Scalar>
std::unique_ptr<Model<Scalar>> make_model(const Config& config) {
  const Config complete = resolved(config);
  return network<Scalar>(complete.arch).make(complete);
}

#define KOZERO_INSTANTIATE(T)                                \
  template const Network<T>& network<T>(const std::string&); \
  template std::unique_ptr<Model<T>> make_model<T>(const Config&);
KOZERO_FOR_STORED_TYPES(KOZERO_INSTANTIATE)

}  // namespace kozero::model
