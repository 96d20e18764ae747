// SPDX-FileCopyrightText: The KoZeRO authors
// SPDX-License-Identifier: Apache-2.0
// weights_description.hpp: what a file of a model's tensors says of itself.
#pragma once
#include <cstdint>
#include <string>

#include <kozero/io/tensor_places.hpp>

namespace kozero::io {

struct WeightsDescription {
  std::string model;        ///< JSON, given by the caller
  std::int64_t step = 0;    ///< updates done
  std::int64_t tokens = 0;  ///< tokens seen
  Ties ties = {};           ///< written beside the tensors; not read back
};

}  // namespace kozero::io
