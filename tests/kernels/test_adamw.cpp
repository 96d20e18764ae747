// SPDX-FileCopyrightText: The KoZeRO authors
// SPDX-License-Identifier: Apache-2.0
// test_adamw.cpp: AdamW against its formula in double, also in 16 bits, and equal bits for any division of the array.
#include "kernels/ops/adamw.hpp"

#include "reference.hpp"

namespace kozero::kernels {
namespace {

using reference::Filled;

constexpr std::int64_t kExtent = 5003;

/// The scalars of step t.
AdamW scalars(int t) {
  return {.lr = 1e-2,
          .beta1 = 0.9,
          .beta2 = 0.999,
          .eps = 1e-8,
          .weight_decay = 0.1,
          .correction1 = 1.0 - std::pow(0.9, t),
          .correction2 = 1.0 - std::pow(0.999, t),
          .gradient_scale = 0.5};
}

/// PyTorch's documented formula for one weight.
struct Reference {
  double weight;
  double exp_avg = 0.0;
  double exp_avg_sq = 0.0;

  void step(double gradient, const AdamW& s) {
    const double g = s.gradient_scale * gradient;
    weight -= s.lr * s.weight_decay * weight;
    exp_avg = s.beta1 * exp_avg + (1.0 - s.beta1) * g;
    exp_avg_sq = s.beta2 * exp_avg_sq + (1.0 - s.beta2) * g * g;
    weight -= s.lr * (exp_avg / s.correction1) / (std::sqrt(exp_avg_sq / s.correction2) + s.eps);
  }
};

struct State {
  Filled<float> weights = Filled<float>(reference::numbers(kExtent, 1));
  Filled<float> exp_avg = Filled<float>(kExtent);
  Filled<float> exp_avg_sq = Filled<float>(kExtent);

  void step(const std::vector<float>& gradient, std::int64_t first, std::int64_t extent, const AdamW& s) const {
    const Filled<float> g(gradient);
    adamw_update(Device(), slice(weights.vector(), first, extent), weights.vector(),
                 slice(exp_avg.vector(), first, extent), slice(exp_avg_sq.vector(), first, extent),
                 slice(g.input(), first, extent), s);
    Device().fence();
  }
};

TEST_CASE("adamw_update follows the formula in double for 10 steps") {
  const State state;
  std::vector<Reference> expected;
  for (const float weight : reference::numbers(kExtent, 1)) expected.push_back(Reference{weight});
  for (int t = 1; t <= 10; ++t) {
    const std::vector<float> gradient = reference::numbers(kExtent, static_cast<std::uint64_t>(t));
    state.step(gradient, 0, kExtent, scalars(t));
    for (std::size_t i = 0; i < gradient.size(); ++i) expected[i].step(gradient[i], scalars(t));
  }
  std::vector<double> weights, first, second;
  for (const Reference& one : expected) {
    weights.push_back(one.weight);
    first.push_back(one.exp_avg);
    second.push_back(one.exp_avg_sq);
  }
  reference::require_near(state.weights.values(), weights, 1e-6);
  reference::require_near(state.exp_avg.values(), first, 1e-7);
  reference::require_near(state.exp_avg_sq.values(), second, 1e-8);
}

TEST_CASE("adamw_update gives the same bits however the array is cut") {
  const State whole, cut;
  for (int t = 1; t <= 3; ++t) {
    const std::vector<float> gradient = reference::numbers(kExtent, static_cast<std::uint64_t>(t));
    whole.step(gradient, 0, kExtent, scalars(t));
    std::int64_t first = 0;
    for (std::int64_t extent = 1; first < kExtent; extent = extent * 2 + t) {
      cut.step(gradient, first, std::min(extent, kExtent - first), scalars(t));
      first += extent;
    }
  }
  CHECK(reference::same_bits(whole.weights.values(), cut.weights.values()));
  CHECK(reference::same_bits(whole.exp_avg.values(), cut.exp_avg.values()));
  CHECK(reference::same_bits(whole.exp_avg_sq.values(), cut.exp_avg_sq.values()));
}

TEMPLATE_TEST_CASE("adamw_update leaves the new weights in 16 bits too, and their own bits do not change by it", "",
                   Bfloat16, Float16) {
  const State plain, rounding;
  const Filled<TestType> rounded(kExtent);
  const std::vector<float> gradient = reference::numbers(kExtent, 3);
  plain.step(gradient, 0, kExtent, scalars(1));
  adamw_update(Device(), rounding.weights.vector(), rounded.vector(), rounding.exp_avg.vector(),
               rounding.exp_avg_sq.vector(), Filled<float>(gradient).input(), scalars(1));
  Device().fence();
  CHECK(reference::same_bits(rounding.weights.values(), plain.weights.values()));
  CHECK(reference::same_bits(rounding.exp_avg_sq.values(), plain.exp_avg_sq.values()));
  CHECK(reference::same_bits(rounded.values(), reference::stored_as<TestType>(plain.weights.values())));
}

TEST_CASE("adamw_update moves by the rate where the gradient is constant, and takes no elements") {
  const Filled<float> weight(std::vector<float>{1.0F}), m(1), v(1), gradient(std::vector<float>{-3.0F});
  AdamW s = scalars(1);
  s.weight_decay = 0.0;
  adamw_update(Device(), weight.vector(), weight.vector(), m.vector(), v.vector(), gradient.input(), s);
  reference::require_near(weight.values(), std::vector<double>{1.01}, 1e-6);
  const Filled<float> none(0);
  adamw_update(Device(), none.vector(), none.vector(), none.vector(), none.vector(), none.input(), s);
  CHECK_THROWS_AS(
      adamw_update(Device(), weight.vector(), weight.vector(), none.vector(), v.vector(), gradient.input(), s), Error);
  const Filled<Bfloat16> two(2);
  CHECK_THROWS_AS(adamw_update(Device(), weight.vector(), two.vector(), m.vector(), v.vector(), gradient.input(), s),
                  Error);
}

}  // namespace
}  // namespace kozero::kernels
