// SPDX-FileCopyrightText: The KoZeRO authors
// SPDX-License-Identifier: Apache-2.0
// sgd.hpp: one step of stochastic gradient descent with momentum, in one pass.
//   g = gradient_scale * gradient + weight_decay * master;  buffer = momentum * buffer + g;  master -= lr * buffer
// `runs` (update_elements.hpp) are the elements with and without weight decay.
// PyTorch's SGD (dampening 0, no Nesterov): a buffer of zeros gives its first step. All arrays have one extent;
// `stored` gets the new weights if the network reads 16 bits. Elementwise: the bits do not depend on how an array is
// cut, since multiply_add leaves no contraction to the compiler. Returns without fencing.
#pragma once
#include <kozero/core/error.hpp>
#include <kozero/core/views.hpp>
#include "kernels/launch/update_elements.hpp"
#include "kernels/launch/vector_math.hpp"

namespace kozero::kernels {

struct Sgd {
  float lr = 0.0F;
  float momentum = 0.0F;
  float weight_decay = 0.0F;
  float gradient_scale = 1.0F;
};

/// The update of one element; a struct for the reason given at AdamWElement.
struct SgdElement {
  Sgd step;

  KOKKOS_FUNCTION Element<2> operator()(const Element<2>& element, float slope, bool decays) const {
    const float g = multiply_add(decays ? step.weight_decay : 0.0F, element[0], step.gradient_scale * slope);
    const float velocity = multiply_add(step.momentum, element[1], g);
    return Element<2>{multiply_add(-step.lr, velocity, element[0]), velocity};
  }
};

template <class Space, class T>
void sgd_update(const Space& space, Vector<float> master, Vector<T> stored, Vector<float> momentum_buffer,
                Vector<const float> gradient, const Sgd& step, const UpdateRuns& runs = {}) {
  update_elements(space, "kozero::sgd_update", UpdatedArrays<T, 2>{{master, momentum_buffer}, stored, gradient, runs},
                  SgdElement{step});
}

}  // namespace kozero::kernels
