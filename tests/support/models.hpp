// SPDX-FileCopyrightText: The KoZeRO authors
// SPDX-License-Identifier: Apache-2.0
// models.hpp: a configuration with its vocabulary in blocks, and a model's forward_backward with the loss as its value.
#pragma once
#include <kozero/core/views.hpp>
#include <kozero/model/model.hpp>

namespace kozero::tests {

/// The configuration with the vocabulary in blocks of `rows` rows.
inline model::Config in_blocks(model::Config config, std::int64_t rows) {
  config.vocab_block = rows;
  return config;
}

inline double forward_backward(model::Model<float>& model, ParameterAccess<float>& access, const model::Batch& batch,
                               float loss_scale) {
  const HostScalars loss("kozero::tests::loss", 1);
  model.forward_backward(access, batch, loss_scale, loss.data());
  Device().fence("kozero::tests::loss");
  return loss(0);
}

}  // namespace kozero::tests
