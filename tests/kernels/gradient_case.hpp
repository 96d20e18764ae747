// SPDX-FileCopyrightText: The KoZeRO authors
// SPDX-License-Identifier: Apache-2.0
// gradient_case.hpp: the gradients of a weight and its bias that a test compares with plain loops in double.
#pragma once
#include <utility>

#include "product_case.hpp"

namespace kozero::kernels {

/// A Filled array that begins `skipped` elements after an address aligned to 16 bytes.
template <class T>
class Shifted {
 public:
  Shifted(std::vector<float> values, std::int64_t skipped)
      : skipped_(skipped), filled_([&] {
          values.insert(values.begin(), static_cast<std::size_t>(skipped), 0.0F);
          return values;
        }()) {}

  [[nodiscard]] Vector<T> vector() const {
    const auto all = filled_.vector();
    return slice(all, skipped_, static_cast<std::int64_t>(all.extent(0)) - skipped_);
  }
  [[nodiscard]] Matrix<T> matrix(std::int64_t rows, std::int64_t columns) const {
    return as_matrix(vector(), rows, columns);
  }
  [[nodiscard]] std::vector<float> values() const {
    const std::vector<float> all = filled_.values();
    return {all.begin() + skipped_, all.end()};
  }

 private:
  std::int64_t skipped_;
  Filled<T> filled_;
};

/// dweight (M, N) = a^T b, added to numbers if `accumulate`; dbias, the sum of the rows of dy, added to numbers.
/// dy is the operand `summed`.
template <class T>
struct GradientCase {
  std::int64_t m, n, k;
  Operand summed;
  bool accumulate;
  std::int64_t skipped = 0;  ///< elements between an address aligned to 16 bytes and each array

  [[nodiscard]] std::int64_t channels() const { return summed == Operand::a ? m : n; }
  [[nodiscard]] Case<Types<float, T>> product() const { return {m, n, k, Op::transpose, Op::none}; }
  [[nodiscard]] std::vector<float> dbias_before() const { return reference::numbers(channels(), 4); }
};

struct WeightGradients {
  std::vector<float> dweight, dbias;
};

template <class T>
WeightGradients gradients_of(const GradientCase<T>& of) {
  const Shifted<T> a(of.product().a().values(), of.skipped), b(of.product().b().values(), of.skipped);
  const Shifted<float> dweight(of.product().c().values(), of.skipped), dbias(of.dbias_before(), of.skipped);
  const Shifted<float> workspace(reference::numbers(row_reduction_workspace(of.channels()), 99), of.skipped);
  matmul_bias_gradient<Device, T>(Device(), dweight.matrix(of.m, of.n), a.matrix(of.k, of.m), b.matrix(of.k, of.n),
                                  of.accumulate, of.summed, dbias.vector(), workspace.vector());
  Device().fence();
  return {dweight.values(), dbias.values()};
}

template <class T>
void check_gradients(const GradientCase<T>& of) {
  CAPTURE(of.m, of.n, of.k, of.summed == Operand::a, of.accumulate, of.skipped);
  std::vector<double> dweight = plain_product(of.product());
  const std::vector<float> before = of.product().c().values();
  for (std::size_t i = 0; of.accumulate && i < dweight.size(); ++i) dweight[i] += static_cast<double>(before[i]);
  std::vector<double> dbias = reference::in_double(of.dbias_before());
  const auto dy = of.summed == Operand::a ? of.product().a().values() : of.product().b().values();
  for (std::size_t i = 0; i < dy.size(); ++i) dbias[i % dbias.size()] += static_cast<double>(dy[i]);

  const double tolerance = 1e-6 + 2e-7 * static_cast<double>(of.k);
  const WeightGradients got = gradients_of(of);
  reference::require_near(got.dweight, dweight, tolerance);
  reference::require_near(got.dbias, dbias, tolerance);
}

}  // namespace kozero::kernels
