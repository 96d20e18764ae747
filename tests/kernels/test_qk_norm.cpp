// SPDX-FileCopyrightText: The KoZeRO authors
// SPDX-License-Identifier: Apache-2.0
// test_qk_norm.cpp: RMSNorm of query and key heads against its formula, its gradient against central differences.
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
  QkHeads heads;
};
const Shape kShapes[] = {{7, {3, 1, 5}}, {1, {1, 1, 1}}, {35, {4, 2, 67}}, {33, {6, 3, 32}}};

template <class T = float>
struct Case {
  Shape shape;
  std::vector<float> qkv, query_gain, key_gain, dy;

  explicit Case(Shape s)
      : shape(s),
        qkv(reference::numbers<T>(s.rows * s.heads.columns(), 1)),
        query_gain(reference::numbers<T>(s.heads.head_dim, 2)),
        key_gain(reference::numbers<T>(s.heads.head_dim, 3)),
        dy(reference::numbers<T>(s.rows * s.heads.columns(), 4)) {}
};

/// Head by head, in double; value heads do not change.
std::vector<double> expected_output(const QkHeads& heads, const std::vector<double>& qkv,
                                    const std::vector<double>& query_gain, const std::vector<double>& key_gain) {
  std::vector<double> y = qkv;
  const auto columns = static_cast<std::size_t>(heads.head_dim);
  const auto per_row = static_cast<std::size_t>(heads.query + 2 * heads.key);
  for (std::size_t head = 0; head * columns < qkv.size(); ++head) {
    const auto in_row = static_cast<std::int64_t>(head % per_row);
    if (in_row >= heads.normed()) continue;
    const auto& gain = in_row < heads.query ? query_gain : key_gain;
    double square = 0.0;
    for (std::size_t c = 0; c < columns; ++c) square += qkv[head * columns + c] * qkv[head * columns + c];
    const double rms = std::sqrt(square / static_cast<double>(columns) + static_cast<double>(kEps));
    for (std::size_t c = 0; c < columns; ++c) y[head * columns + c] *= gain[c] / rms;
  }
  return y;
}

struct Outputs {
  std::vector<float> y, dqkv, dquery_gain, dkey_gain;
};

/// Runs forward and backward; the gains' gradients start at `start`.
template <class Space, class T>
Outputs run(const Case<T>& c, float start) {
  const auto& [rows, heads] = c.shape;
  const std::int64_t columns = heads.columns();
  const Filled<T> qkv(c.qkv), dqkv(c.dy), y(rows * columns), query_gain(c.query_gain), key_gain(c.key_gain);
  const Filled<float> rstd(rows * heads.normed());
  const Filled<float> dquery(std::vector<float>(c.query_gain.size(), start));
  const Filled<float> dkey(std::vector<float>(c.key_gain.size(), start));
  const Filled<float> workspace(row_reduction_workspace(heads.head_dim));
  const QkVectors<const T> gains{query_gain.input(), key_gain.input()};
  const auto rstds = rstd.matrix(rows, heads.normed());
  qk_norm_forward(Space(), y.matrix(rows, columns), rstds, qkv.input(rows, columns), gains, heads, kEps);
  qk_norm_backward(Space(), dqkv.matrix(rows, columns), {dquery.vector(), dkey.vector()}, qkv.input(rows, columns),
                   rstds, gains, heads, workspace.vector());
  Space().fence();
  return {y.values(), dqkv.values(), dquery.values(), dkey.values()};
}

TEMPLATE_LIST_TEST_CASE("qk_norm_forward norms each query and key head and leaves the values", "",
                        reference::StoredTypes) {
  for (const Shape& shape : kShapes) {
    const Case<TestType> c(shape);
    const auto y = run<Device>(c, 0.0F).y;
    reference::require_near_in<TestType>(
        y, expected_output(shape.heads, in_double(c.qkv), in_double(c.query_gain), in_double(c.key_gain)), 1e-5);
  }
}

TEMPLATE_LIST_TEST_CASE("qk_norm_backward gives the central differences of the forward", "", reference::StoredTypes) {
  const Case<TestType> c(kShapes[0]);
  const Outputs got = run<Device>(c, 0.5F);
  const auto qkv = in_double(c.qkv);
  const auto query = in_double(c.query_gain);
  const auto key = in_double(c.key_gain);
  const auto loss = [&](const auto& of_qkv, const auto& of_query, const auto& of_key) {
    return reference::weighted_sum(c.dy, expected_output(c.shape.heads, of_qkv, of_query, of_key));
  };
  using At = std::vector<double>;
  const auto dqkv = gradient([&](const At& at) { return loss(at, query, key); }, qkv);
  const auto dquery = gradient([&](const At& at) { return loss(qkv, at, key); }, query, 0.5);
  const auto dkey = gradient([&](const At& at) { return loss(qkv, query, at); }, key, 0.5);
  reference::require_near_in<TestType>(got.dqkv, dqkv, 1e-5);
  reference::require_near(got.dquery_gain, dquery, 1e-5);
  reference::require_near(got.dkey_gain, dkey, 1e-5);
}

TEST_CASE("a gain of zero gives finite gradients: nothing is divided by it") {
  Case c(kShapes[0]);
  c.query_gain.assign(c.query_gain.size(), 0.0F);
  const Outputs got = run<Device>(c, 0.0F);
  for (const float value : got.dqkv) CHECK(std::isfinite(value));
  for (const float value : got.dquery_gain) CHECK((std::isfinite(value) && value != 0.0F));
}

TEST_CASE("qk_norm takes no rows and refuses heads that do not fit") {
  CHECK(run<Device>(Case({0, {3, 1, 5}}), 0.5F).dquery_gain == std::vector<float>(5, 0.5F));
  Case c({7, {3, 1, 5}});
  c.key_gain.pop_back();
  CHECK_THROWS_AS(run<Device>(c, 0.0F), Error);
}

TEST_CASE("qk_norm gives the same bits on one thread as on all") {
  if constexpr (runs_on_host<Device>) {
    const Case c({203, {4, 2, 34}});
    const Outputs all = run<Device>(c, 0.5F);
    const Outputs one = run<Kokkos::Serial>(c, 0.5F);
    CHECK(reference::same_bits(all.y, one.y));
    CHECK(reference::same_bits(all.dqkv, one.dqkv));
    CHECK(reference::same_bits(all.dquery_gain, one.dquery_gain));
    CHECK(reference::same_bits(all.dkey_gain, one.dkey_gain));
  }
}

}  // namespace
}  // namespace kozero::kernels
