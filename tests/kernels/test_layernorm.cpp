// SPDX-FileCopyrightText: The KoZeRO authors
// SPDX-License-Identifier: Apache-2.0
// test_layernorm.cpp: layer normalization against its formula in double, its gradient against central differences.
#include "kernels/ops/layernorm.hpp"

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
  std::vector<float> x, gamma, beta, dy;

  explicit Case(Shape s)
      : shape(s),
        x(reference::numbers<T>(s.rows * s.columns, 1)),
        gamma(reference::numbers<T>(s.columns, 2)),
        beta(reference::numbers<T>(s.columns, 3)),
        dy(reference::numbers<T>(s.rows * s.columns, 4)) {}
};

std::vector<double> expected_output(std::size_t columns, const std::vector<double>& x, const std::vector<double>& gamma,
                                    const std::vector<double>& beta) {
  std::vector<double> y(x.size());
  for (std::size_t row = 0; row < x.size(); row += columns) {
    double mean = 0.0;
    double variance = 0.0;
    for (std::size_t c = 0; c < columns; ++c) mean += x[row + c] / static_cast<double>(columns);
    for (std::size_t c = 0; c < columns; ++c) variance += std::pow(x[row + c] - mean, 2) / static_cast<double>(columns);
    const double rstd = 1.0 / std::sqrt(variance + static_cast<double>(kEps));
    for (std::size_t c = 0; c < columns; ++c) y[row + c] = gamma[c] * (x[row + c] - mean) * rstd + beta[c];
  }
  return y;
}

struct Outputs {
  std::vector<float> y, dx, dgamma, dbeta;
};

/// Runs forward and backward; each gradient starts at `start`.
template <class Space, class T>
Outputs run(const Case<T>& c, float start, bool shifted = true) {
  const auto [rows, columns] = c.shape;
  const auto filled = [&](std::size_t extent) { return Filled<float>(std::vector<float>(extent, start)); };
  const Filled<T> x(c.x), gamma(c.gamma), beta(c.beta), dy(c.dy), y(rows * columns);
  const Filled<float> mean(rows), rstd(rows), workspace(row_reduction_workspace(columns));
  const Filled<T> dx(std::vector<float>(c.x.size(), start));
  const Filled<float> dgamma = filled(c.gamma.size());
  const Filled<float> dbeta = filled(c.beta.size());
  layernorm_forward(Space(), y.matrix(rows, columns), mean.vector(), rstd.vector(), x.input(rows, columns),
                    gamma.input(), shifted ? beta.input() : Vector<const T>(), kEps);
  layernorm_backward(Space(), dx.matrix(rows, columns), dgamma.vector(), shifted ? dbeta.vector() : Vector<float>(),
                     dy.input(rows, columns), x.input(rows, columns), gamma.input(), mean.vector(), rstd.vector(),
                     workspace.vector());
  Space().fence();
  return {y.values(), dx.values(), dgamma.values(), dbeta.values()};
}

TEMPLATE_LIST_TEST_CASE("layernorm_forward follows its formula", "", reference::StoredTypes) {
  for (const Shape shape : kShapes) {
    const Case<TestType> c(shape);
    const auto columns = static_cast<std::size_t>(shape.columns);
    reference::require_near_in<TestType>(
        run<Device>(c, 0.0F).y, expected_output(columns, in_double(c.x), in_double(c.gamma), in_double(c.beta)), 1e-5);
  }
}

TEMPLATE_LIST_TEST_CASE("layernorm_backward adds the central differences of the forward", "", reference::StoredTypes) {
  for (const Shape shape : {kShapes[0], kShapes[4]}) {
    const Case<TestType> c(shape);
    const auto columns = static_cast<std::size_t>(shape.columns);
    const Outputs got = run<Device>(c, 0.5F);
    const auto x = in_double(c.x);
    const auto gamma = in_double(c.gamma);
    const auto beta = in_double(c.beta);
    const auto loss = [&](const std::vector<double>& x_, const std::vector<double>& gamma_,
                          const std::vector<double>& beta_) {
      return reference::weighted_sum(c.dy, expected_output(columns, x_, gamma_, beta_));
    };
    using At = std::vector<double>;
    const auto dx = gradient([&](const At& at) { return loss(at, gamma, beta); }, x, 0.5);
    reference::require_near_in<TestType>(got.dx, dx, 1e-5);
    reference::require_near(got.dgamma, gradient([&](const At& at) { return loss(x, at, beta); }, gamma, 0.5), 1e-5);
    reference::require_near(got.dbeta, gradient([&](const At& at) { return loss(x, gamma, at); }, beta, 0.5), 1e-5);
  }
}

TEMPLATE_LIST_TEST_CASE("layernorm without beta is layernorm with a beta of zeros, bit for bit", "",
                        reference::StoredTypes) {
  for (const Shape shape : kShapes) {
    Case<TestType> c(shape);
    const Outputs without = run<Device>(c, 0.5F, false);
    std::fill(c.beta.begin(), c.beta.end(), 0.0F);
    const Outputs zeros = run<Device>(c, 0.5F);
    CHECK(without.y == zeros.y);  // but for the sign of a zero
    CHECK(reference::same_bits(without.dx, zeros.dx));
    if constexpr (runs_on_host<Device>) CHECK(reference::same_bits(without.dgamma, zeros.dgamma));
    reference::require_near(without.dgamma, in_double(zeros.dgamma), 1e-5);
    CHECK(without.dbeta == std::vector<float>(c.beta.size(), 0.5F));
  }
}

TEST_CASE("layernorm takes zero extents") {
  CHECK(run<Device>(Case({0, 13}), 0.5F).dgamma == std::vector<float>(13, 0.5F));
  CHECK(run<Device>(Case({7, 0}), 0.5F).y.empty());
}

TEST_CASE("layernorm gives the same bits on one thread as on all") {
  if constexpr (runs_on_host<Device>) {
    const Case c({203, 67});
    const Outputs all = run<Device>(c, 0.5F);
    const Outputs one = run<Kokkos::Serial>(c, 0.5F);
    CHECK(reference::same_bits(all.y, one.y));
    CHECK(reference::same_bits(all.dx, one.dx));
    CHECK(reference::same_bits(all.dgamma, one.dgamma));
    CHECK(reference::same_bits(all.dbeta, one.dbeta));
  }
}

TEST_CASE("layernorm_forward refuses shapes that do not fit") {
  const Filled<float> x(7 * 13), vector(13), rows(7);
  CHECK_THROWS_AS(layernorm_forward(Device(), x.matrix(7, 13), rows.vector(), rows.vector(), x.input(7, 13),
                                    vector.input(), rows.input(), kEps),
                  Error);
}

}  // namespace
}  // namespace kozero::kernels
