// SPDX-FileCopyrightText: The KoZeRO authors
// SPDX-License-Identifier: Apache-2.0
// model_loss.hpp: a model's forward_backward with the loss as its value.
#pragma once
#include <kozero/core/views.hpp>
#include <kozero/model/model.hpp>

namespace kozero::tests {

inline double forward_backward(model::Model<float>& model, ParameterAccess<float>& access, const model::Batch& batch,
                               float loss_scale) {
  const HostScalars loss("kozero::tests::loss", 1);
  model.forward_backward(access, batch, loss_scale, loss.data());
  Device().fence("kozero::tests::loss");
  return loss(0);
}

}  // namespace kozero::tests
