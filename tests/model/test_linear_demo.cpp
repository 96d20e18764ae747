// SPDX-FileCopyrightText: The KoZeRO authors
// SPDX-License-Identifier: Apache-2.0
// test_linear_demo.cpp: gradient descent on the linear demo finds its teacher.
#include <catch2/catch_test_macros.hpp>
#include <cstdio>

#include "kernels/ops/sgd.hpp"

#include "tiny_models.hpp"

namespace kozero::tests {
namespace {

/// The two numbers of the closing line.
std::pair<double, double> distances(TinyModel& tiny) {
  double of_weight = -1.0;
  double of_bias = -1.0;
  const std::string line = tiny.model->closing_line(tiny.access);
  REQUIRE(std::sscanf(line.c_str(), "largest |W - W*| = %lf, largest |b - b*| = %lf", &of_weight, &of_bias) == 2);
  return {of_weight, of_bias};
}

TEST_CASE("SGD with momentum recovers the teacher") {
  constexpr std::int64_t kBatch = 16;
  const model::Config config{.arch = "linear", .dim = 9, .ffn = 4, .seed = 21};
  TinyModel tiny(config, kBatch);
  CHECK(distances(tiny).first > 0.1);

  const auto& rows = tiny.model->parameters().rows();
  std::vector<Kokkos::View<float*, Kokkos::LayoutRight, DeviceMemory>> momenta;
  for (const auto& row : rows) momenta.emplace_back(row.name, static_cast<std::size_t>(row.extent()));
  double first = 0.0;
  double last = 0.0;
  for (std::uint64_t step = 0; step < 300; ++step) {
    tiny.access.clear_gradients();
    const auto batch = TokenBatch::noise(kBatch, 1, 2, step * kBatch);
    last = forward_backward(*tiny.model, tiny.access, batch.view(), 1.0F / kBatch);
    if (step == 0) first = last;
    for (std::size_t row = 0; row < rows.size(); ++row) {
      const int index = static_cast<int>(row);
      kernels::sgd_update(Device(), tiny.access.weight_view(index), tiny.access.weight_view(index),
                          Vector<float>(momenta[row].data(), momenta[row].extent(0)), tiny.access.gradient_view(index),
                          {.lr = 0.3F, .momentum = 0.9F});
    }
    Kokkos::fence();
  }
  CHECK(last < 1e-6 * first);
  CHECK(distances(tiny).first < 1e-4);
  CHECK(distances(tiny).second < 1e-4);
}

TEST_CASE("a sample's inputs depend on its id alone") {
  const model::Config config{.arch = "linear", .dim = 5, .ffn = 2, .seed = 2};
  TinyModel tiny(config, 4);
  const auto batch = TokenBatch::noise(4, 1, 2, 100);
  const double whole = tiny.model->evaluate(tiny.access, batch.view());
  double sum = 0.0;
  for (int n = 3; n >= 0; --n) sum += tiny.model->evaluate(tiny.access, batch.part(n, 1));
  CHECK(std::abs(sum - whole) < 1e-6 * whole);
  CHECK(tiny.model->evaluate(tiny.access, batch.part(0, 0)) == 0.0);
  CHECK(tiny.model->evaluate(tiny.access, batch.part(0, 1)) != tiny.model->evaluate(tiny.access, batch.part(1, 1)));
}

}  // namespace
}  // namespace kozero::tests
