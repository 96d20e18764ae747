// SPDX-FileCopyrightText: The KoZeRO authors
// SPDX-License-Identifier: Apache-2.0
// test_rmsnorm.cpp: RMSNorm of rows against its formula in double, its gradient against central differences.
#include "kernels/ops/rmsnorm.hpp"

#include "reference.hpp"

namespace kozero::kernels {
namespace {

using reference::Filled;
using reference::gradient;
using reference::in_double;

constexpr float kEps = 1e-5F;

struct Shape {
  std::int64_t rows;
  std::int64_t columns;
};
// The last two are longer than the 512 columns that a GPU's warp reads at once.
constexpr Shape kShapes[] = {{7, 13}, {1, 1}, {70, 67}, {33, 64}, {2, 1031}, {2, 1032}};

/// The inputs of one case.
template <class T = float>
struct Case {
  Shape shape;
  std::vector<float> x, gamma, dy;

  explicit Case(Shape s)
      : shape(s),
        x(reference::numbers<T>(s.rows * s.columns, 1)),
        gamma(reference::numbers<T>(s.columns, 2)),
        dy(reference::numbers<T>(s.rows * s.columns, 4)) {}
};

std::vector<double> expected_output(std::size_t columns, const std::vector<double>& x,
                                    const std::vector<double>& gamma) {
  std::vector<double> y(x.size());
  for (std::size_t row = 0; row < x.size(); row += columns) {
    double square = 0.0;
    for (std::size_t c = 0; c < columns; ++c) square += x[row + c] * x[row + c] / static_cast<double>(columns);
    const double rstd = 1.0 / std::sqrt(square + static_cast<double>(kEps));
    for (std::size_t c = 0; c < columns; ++c) y[row + c] = gamma[c] * x[row + c] * rstd;
  }
  return y;
}

struct Outputs {
  std::vector<float> y, dx, dgamma;
};

/// Runs forward and backward; each gradient starts at `start`.
template <class Space, class T>
Outputs run(const Case<T>& c, float start) {
  const auto [rows, columns] = c.shape;
  const Filled<T> x(c.x), gamma(c.gamma), dy(c.dy), y(rows * columns);
  const Filled<float> rstd(rows), workspace(row_reduction_workspace(columns));
  const Filled<T> dx(std::vector<float>(c.x.size(), start));
  const Filled<float> dgamma(std::vector<float>(c.gamma.size(), start));
  rmsnorm_forward(Space(), y.matrix(rows, columns), rstd.vector(), x.input(rows, columns), gamma.input(), kEps);
  rmsnorm_backward(Space(), dx.matrix(rows, columns), dgamma.vector(), dy.input(rows, columns), x.input(rows, columns),
                   gamma.input(), rstd.vector(), workspace.vector());
  Space().fence();
  return {y.values(), dx.values(), dgamma.values()};
}

TEMPLATE_LIST_TEST_CASE("rmsnorm_forward follows its formula", "", reference::StoredTypes) {
  for (const Shape shape : kShapes) {
    const Case<TestType> c(shape);
    reference::require_near_in<TestType>(
        run<Device>(c, 0.0F).y,
        expected_output(static_cast<std::size_t>(shape.columns), in_double(c.x), in_double(c.gamma)), 1e-5);
  }
}

TEMPLATE_LIST_TEST_CASE("rmsnorm_backward adds the central differences of the forward", "", reference::StoredTypes) {
  for (const Shape shape : {kShapes[0], kShapes[4]}) {
    const Case<TestType> c(shape);
    const auto columns = static_cast<std::size_t>(shape.columns);
    const Outputs got = run<Device>(c, 0.5F);
    const auto x = in_double(c.x);
    const auto gamma = in_double(c.gamma);
    const auto loss = [&](const std::vector<double>& x_, const std::vector<double>& gamma_) {
      return reference::weighted_sum(c.dy, expected_output(columns, x_, gamma_));
    };
    using At = std::vector<double>;
    reference::require_near_in<TestType>(got.dx, gradient([&](const At& at) { return loss(at, gamma); }, x, 0.5), 1e-5);
    reference::require_near(got.dgamma, gradient([&](const At& at) { return loss(x, at); }, gamma, 0.5), 1e-5);
  }
}

TEST_CASE("rmsnorm takes zero extents") {
  CHECK(run<Device>(Case({0, 13}), 0.5F).dgamma == std::vector<float>(13, 0.5F));
  CHECK(run<Device>(Case({7, 0}), 0.5F).y.empty());
}

TEST_CASE("rmsnorm gives the same bits on one thread as on all") {
  if constexpr (runs_on_host<Device>) {
    const Case c({203, 67});
    const Outputs all = run<Device>(c, 0.5F);
    const Outputs one = run<Kokkos::Serial>(c, 0.5F);
    CHECK(reference::same_bits(all.y, one.y));
    CHECK(reference::same_bits(all.dx, one.dx));
    CHECK(reference::same_bits(all.dgamma, one.dgamma));
  }
}

}  // namespace
}  // namespace kozero::kernels
