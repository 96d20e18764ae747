// SPDX-FileCopyrightText: The KoZeRO authors
// SPDX-License-Identifier: Apache-2.0
// test_sgd.cpp: SGD against PyTorch's formula in double, and equal bits for any division of the array.
#include "kernels/ops/sgd.hpp"

#include "reference.hpp"

namespace kozero::kernels {
namespace {

using reference::Filled;

constexpr std::int64_t kExtent = 5003;
constexpr Sgd kStep{.lr = 0.1F, .momentum = 0.9F, .weight_decay = 0.01F, .gradient_scale = 0.5F};

TEST_CASE("sgd_update follows PyTorch's formula in double for 10 steps") {
  const std::vector<float> start = reference::numbers(kExtent, 1);
  const Filled<float> weights(start), buffer(kExtent);
  std::vector<double> expected = reference::in_double(start);
  std::vector<double> velocity(start.size(), 0.0);
  for (std::uint64_t t = 1; t <= 10; ++t) {
    const std::vector<float> gradient = reference::numbers(kExtent, t);
    sgd_update(Device(), weights.vector(), weights.vector(), buffer.vector(), Filled<float>(gradient).input(), kStep);
    Device().fence();
    for (std::size_t i = 0; i < gradient.size(); ++i) {
      const double g = 0.5 * gradient[i] + 0.01 * expected[i];
      velocity[i] = t == 1 ? g : 0.9 * velocity[i] + g;
      expected[i] -= 0.1 * velocity[i];
    }
  }
  reference::require_near(weights.values(), expected, 1e-5);
  reference::require_near(buffer.values(), velocity, 1e-5);
}

TEST_CASE("sgd_update gives the same bits however the array is cut") {
  const std::vector<float> start = reference::numbers(kExtent, 1);
  const Filled<float> gradient(reference::numbers(kExtent, 2));
  const Filled<float> whole(start), whole_buffer(start), cut(start), cut_buffer(start);
  sgd_update(Device(), whole.vector(), whole.vector(), whole_buffer.vector(), gradient.input(), kStep);
  for (std::int64_t first = 0, extent = 1; first < kExtent; first += extent, extent += 37) {
    extent = std::min(extent, kExtent - first);
    sgd_update(Device(), slice(cut.vector(), first, extent), cut.vector(), slice(cut_buffer.vector(), first, extent),
               slice(gradient.input(), first, extent), kStep);
  }
  Device().fence();
  CHECK(reference::same_bits(whole.values(), cut.values()));
  CHECK(reference::same_bits(whole_buffer.values(), cut_buffer.values()));
}

TEST_CASE("sgd_update takes no elements and refuses different extents") {
  const Filled<float> none(0), one(1);
  sgd_update(Device(), none.vector(), none.vector(), none.vector(), none.input(), kStep);
  CHECK_THROWS_AS(sgd_update(Device(), one.vector(), one.vector(), none.vector(), one.input(), kStep), Error);
}

}  // namespace
}  // namespace kozero::kernels
