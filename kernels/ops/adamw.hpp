// SPDX-FileCopyrightText: The KoZeRO authors
// SPDX-License-Identifier: Apache-2.0
// adamw.hpp: one step of Adam with decoupled weight decay, in one pass over weights, moments and gradient.
//   g = gradient_scale * gradient;  master *= 1 - lr * weight_decay
//   exp_avg += (1 - beta1) (g - exp_avg);  exp_avg_sq = beta2 exp_avg_sq + (1 - beta2) g^2
//   master -= (lr / correction1) exp_avg / (sqrt(exp_avg_sq) / sqrt(correction2) + eps)      all of one extent
//   stored = T(master), if the network reads 16 bits
// `runs` (update_elements.hpp) are the elements with and without weight decay.
// PyTorch's AdamW formula (amsgrad off). Elementwise: the bits do not depend on how an array is cut, since multiply_add
// leaves no contraction to the compiler. Returns without fencing. Loshchilov, Hutter 2019, arXiv:1711.05101.
#pragma once
#include <cmath>

#include <kozero/core/error.hpp>
#include <kozero/core/views.hpp>
#include "kernels/launch/update_elements.hpp"
#include "kernels/launch/vector_math.hpp"

namespace kozero::kernels {

/// The step's scalars, rounded to float after they are combined; correction1 = 1 - beta1^t, correction2 = 1 - beta2^t
/// at step t (from 1).
struct AdamW {
  double lr = 1e-4;
  double beta1 = 0.9;
  double beta2 = 0.999;
  double eps = 1e-8;
  double weight_decay = 0.0;
  double correction1 = 1.0;
  double correction2 = 1.0;
  double gradient_scale = 1.0;
};

/// The update of one element. A struct, since nvcc calls a host-device lambda through a pointer on the host.
class AdamWElement {
 public:
  explicit AdamWElement(const AdamW& step)
      : keep_(static_cast<float>(1.0 - step.lr * step.weight_decay)),
        rate_(static_cast<float>(step.lr / step.correction1)),
        inverse_root_(static_cast<float>(1.0 / std::sqrt(step.correction2))),
        rest1_(static_cast<float>(1.0 - step.beta1)),
        rest2_(static_cast<float>(1.0 - step.beta2)),
        beta2_(static_cast<float>(step.beta2)),
        eps_(static_cast<float>(step.eps)),
        scale_(static_cast<float>(step.gradient_scale)) {}

  KOKKOS_FUNCTION Element<3> operator()(const Element<3>& element, float slope, bool decays) const {
    const float g = scale_ * slope;
    const float first = multiply_add(rest1_, multiply_add(scale_, slope, -element[1]), element[1]);
    const float second = multiply_add(beta2_, element[2], rest2_ * g * g);
    const float denominator = multiply_add(Kokkos::sqrt(second), inverse_root_, eps_);
    const float updated = multiply_add(-rate_, first / denominator, (decays ? keep_ : 1.0F) * element[0]);
    return Element<3>{updated, first, second};
  }

 private:
  float keep_, rate_, inverse_root_, rest1_, rest2_, beta2_, eps_, scale_;
};

template <class Space, class T>
void adamw_update(const Space& space, Vector<float> master, Vector<T> stored, Vector<float> exp_avg,
                  Vector<float> exp_avg_sq, Vector<const float> gradient, const AdamW& step,
                  const UpdateRuns& runs = {}) {
  update_elements(space, "kozero::adamw_update",
                  UpdatedArrays<T, 3>{{master, exp_avg, exp_avg_sq}, stored, gradient, runs}, AdamWElement(step));
}

}  // namespace kozero::kernels
