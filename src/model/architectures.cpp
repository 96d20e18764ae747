// SPDX-FileCopyrightText: The KoZeRO authors
// SPDX-License-Identifier: Apache-2.0
// architectures.cpp: the table of networks, and the model that a shape names.
#include <kozero/core/error.hpp>
#include <kozero/core/precision.hpp>
#include "src/model/architectures.hpp"
#include "src/model/linear_demo.hpp"

namespace kozero::model {

template <class Scalar>
const std::vector<Architecture<Scalar>>& architectures() {
  static const std::vector<Architecture<Scalar>> list = {
      {"gpt2", resolve_gpt2, make_gpt2<Scalar>},       {"llama", resolve_llama, make_llama<Scalar>},
      {"qwen2", resolve_qwen2, make_llama<Scalar>},    {"qwen3", resolve_qwen3, make_llama<Scalar>},
      {"linear", resolve_linear, make_linear<Scalar>},
  };
  return list;
}

template <class Scalar>
std::unique_ptr<Model<Scalar>> make_model(const Config& config) {
  const Config complete = resolved(config);
  for (const auto& architecture : architectures<Scalar>()) {
    if (architecture.name == complete.arch) return architecture.make(complete);
  }
  throw Error(Failure::internal, "make_model: no architecture " + complete.arch);
}

#define KOZERO_INSTANTIATE(T)                                      \
  template const std::vector<Architecture<T>>& architectures<T>(); \
  template std::unique_ptr<Model<T>> make_model<T>(const Config&);
KOZERO_FOR_STORED_TYPES(KOZERO_INSTANTIATE)

}  // namespace kozero::model
