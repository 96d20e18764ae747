// SPDX-FileCopyrightText: The KoZeRO authors
// SPDX-License-Identifier: Apache-2.0
// test_bias.cpp: the gradient of a bias against plain sums, on one thread and on all.
#include "kernels/ops/bias.hpp"

#include "reference.hpp"

namespace kozero::kernels {
namespace {

using reference::Filled;

template <class Space, class T = float>
std::vector<float> column_sums(const std::vector<float>& dy, std::int64_t rows, std::int64_t columns, float start) {
  const Filled<T> gradient(dy);
  const Filled<float> dbias(std::vector<float>(static_cast<std::size_t>(columns), start));
  const Filled<float> workspace(reference::numbers(row_reduction_workspace(columns), 99));
  bias_backward(Space(), dbias.vector(), gradient.input(rows, columns), workspace.vector());
  Space().fence();
  return dbias.values();
}

TEMPLATE_LIST_TEST_CASE("bias_backward adds the column sums to what is there", "", reference::StoredTypes) {
  for (const std::int64_t rows : {1, 7, 31, 32, 33, 200}) {
    for (const std::int64_t columns : {1, 13, 520, 4103}) {
      const std::vector<float> dy = reference::numbers<TestType>(rows * columns, 5);
      std::vector<double> expected(static_cast<std::size_t>(columns), 2.0);
      for (std::size_t i = 0; i < dy.size(); ++i) expected[i % expected.size()] += dy[i];
      reference::require_near(column_sums<Device, TestType>(dy, rows, columns, 2.0F), expected, 1e-4);
    }
  }
}

TEST_CASE("bias_backward leaves dbias alone where there are no rows, and takes no columns") {
  CHECK(column_sums<Device>({}, 0, 3, 2.0F) == std::vector<float>(3, 2.0F));
  CHECK(column_sums<Device>({}, 5, 0, 2.0F).empty());
}

TEST_CASE("bias_backward gives the same bits on one thread as on all") {
  if constexpr (runs_on_host<Device>) {
    const std::vector<float> dy = reference::numbers(203 * 4103, 5);
    const std::vector<float> all = column_sums<Device>(dy, 203, 4103, 0.0F);
    CHECK(reference::same_bits(all, column_sums<Kokkos::Serial>(dy, 203, 4103, 0.0F)));
  }
}

TEST_CASE("bias_backward refuses a workspace that is too small") {
  const Filled<float> dy(std::vector<float>(64 * 3, 1.0F));
  const Filled<float> dbias(3);
  const Filled<float> workspace(4);
  CHECK_THROWS_AS(bias_backward(Device(), dbias.vector(), dy.input(64, 3), workspace.vector()), Error);
}

}  // namespace
}  // namespace kozero::kernels
