// SPDX-FileCopyrightText: The KoZeRO authors
// SPDX-License-Identifier: Apache-2.0
// sgd.hpp: one step of stochastic gradient descent with momentum, in one pass.
//   g = gradient_scale * gradient + weight_decay * master;  buffer = momentum * buffer + g;  master -= lr * buffer
// PyTorch's SGD (dampening 0, no Nesterov): a buffer of zeros gives its first step. All of one extent. Elementwise: the
// bits do not depend on how an array is cut. Returns without fencing.
#pragma once
#include <kozero/core/error.hpp>
#include <kozero/core/views.hpp>
#include <kozero/kernels/elements.hpp>

namespace kozero::kernels {

template <class Space>
void sgd_update(const Space& space, Vector<float> master, Vector<float> momentum_buffer, Vector<const float> gradient,
                float lr, float momentum, float weight_decay, float gradient_scale) {
  require(momentum_buffer.extent(0) == master.extent(0) && gradient.extent(0) == master.extent(0),
          "sgd_update: weights, momentum and gradient differ in extent");
  float* const w = master.data();
  float* const buffer = momentum_buffer.data();
  const float* const grad = gradient.data();
  for_each_element(
      space, "kozero::sgd_update", static_cast<std::int64_t>(master.extent(0)), KOKKOS_LAMBDA(std::int64_t i) {
        const float scaled = gradient_scale * grad[i];
        const float g = scaled + weight_decay * w[i];
        const float velocity = momentum * buffer[i] + g;
        buffer[i] = velocity;
        w[i] -= lr * velocity;
      });
}

}  // namespace kozero::kernels
