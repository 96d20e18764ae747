// SPDX-FileCopyrightText: The KoZeRO authors
// SPDX-License-Identifier: Apache-2.0
// test_cross_entropy.cpp: losses and gradients against plain loops in double and against central differences.
#include <algorithm>
#include <cmath>
#include <limits>

#include "kernels/ops/cross_entropy.hpp"

#include "reference.hpp"

namespace kozero::kernels {
namespace {

using reference::Filled;

/// The loss of one row of `columns` logits that begins at `first`.
double plain_loss(const std::vector<double>& x, std::size_t first, std::size_t columns, std::size_t target) {
  const double largest = *std::max_element(x.begin() + static_cast<std::ptrdiff_t>(first),
                                           x.begin() + static_cast<std::ptrdiff_t>(first + columns));
  double sum = 0.0;
  for (std::size_t v = 0; v < columns; ++v) sum += std::exp(x[first + v] - largest);
  return largest + std::log(sum) - x[first + target];
}

template <class T = float>
struct Batch {
  std::int64_t rows, columns;
  float spread;
  [[nodiscard]] std::vector<float> logits() const {
    std::vector<float> values = reference::numbers(rows * columns, 8);
    for (float& x : values) x *= spread;
    return reference::stored_as<T>(values);
  }
  [[nodiscard]] std::vector<Token> targets() const {
    std::vector<Token> ids(static_cast<std::size_t>(rows));
    for (std::size_t n = 0; n < ids.size(); ++n)
      ids[n] = static_cast<Token>((n * 7 + 3) % static_cast<std::size_t>(columns));
    return ids;
  }
  /// scale * d loss / d logits in double.
  [[nodiscard]] std::vector<double> gradient(double scale) const {
    const std::vector<double> x = reference::in_double(logits());
    const std::vector<Token> ids = targets();
    std::vector<double> result(x.size());
    const auto width = static_cast<std::size_t>(columns);
    for (std::size_t i = 0; i < x.size(); ++i) {
      const std::size_t n = i / width;
      const std::size_t target = static_cast<std::size_t>(ids[n]);
      const double log_p = x[i] - x[n * width + target] - plain_loss(x, n * width, width, target);
      result[i] = scale * (std::exp(log_p) - (i % width == target ? 1.0 : 0.0));
    }
    return result;
  }
  [[nodiscard]] std::vector<double> losses() const {
    const std::vector<double> x = reference::in_double(logits());
    const std::vector<Token> ids = targets();
    std::vector<double> result;
    for (std::size_t n = 0; n < ids.size(); ++n) {
      const auto width = static_cast<std::size_t>(columns);
      result.push_back(plain_loss(x, n * width, width, static_cast<std::size_t>(ids[n])));
    }
    return result;
  }
};

template <class T>
void check(const Batch<T>& batch) {
  CAPTURE(batch.rows, batch.columns, batch.spread);
  const Filled<T> logits(batch.logits());
  const Filled<Token> targets(batch.targets());
  const Filled<float> losses(batch.rows);
  const double tolerance = 2e-6 * std::max(1.0F, batch.spread);
  cross_entropy_forward(Device(), losses.vector(), logits.input(batch.rows, batch.columns), targets.input(),
                        batch.columns);
  reference::require_near(losses.values(), batch.losses(), tolerance);
  REQUIRE(reference::same_bits(logits.values(), batch.logits()));

  const std::vector<float> forward = losses.values();
  cross_entropy(Device(), losses.vector(), logits.matrix(batch.rows, batch.columns), targets.input(), batch.columns,
                0.25F);
  REQUIRE(reference::same_bits(losses.values(), forward));
  reference::require_near_in<T>(logits.values(), batch.gradient(0.25), tolerance);
}

/// The losses; the gradients replace the logits. Computed in blocks of `width` columns; a row has 8 more, which are
/// NaN.
template <class T>
struct ByBlocks {
  std::vector<float> losses, gradient;

  ByBlocks(const Batch<T>& batch, std::int64_t width, const std::vector<float>& logits)
      : ByBlocks(batch, width, logits, batch.targets()) {}
  ByBlocks(const Batch<T>& batch, std::int64_t width, const std::vector<float>& logits, const std::vector<Token>& ids)
      : losses(static_cast<std::size_t>(batch.rows)), gradient(logits.size()) {
    const Filled<Token> targets(ids);
    const Filled<float> largest(batch.rows), sum(batch.rows), target(batch.rows), loss(batch.rows);
    const SoftmaxOfRows softmax{largest.vector(), sum.vector(), target.vector()};
    const auto count_of = [&](std::int64_t first) { return std::min(width, batch.columns - first); };
    const auto block_of = [&](std::int64_t first) {
      const std::int64_t columns = count_of(first) + 8;
      std::vector<float> values(static_cast<std::size_t>(batch.rows * columns),
                                std::numeric_limits<float>::quiet_NaN());
      for (std::int64_t n = 0; n < batch.rows; ++n) {
        std::copy_n(logits.begin() + n * batch.columns + first, count_of(first), values.begin() + n * columns);
      }
      return values;
    };
    const std::int64_t last = (batch.columns - 1) / width * width;
    for (std::int64_t first = last; first >= 0; first -= width) {
      const Filled<T> block(block_of(first));
      add_to_softmax(Device(), softmax, block.matrix(batch.rows, count_of(first) + 8), targets.input(),
                     LogitBlock{first, count_of(first)}, first == last);
    }
    put_losses(Device(), loss.vector(), softmax, targets.input());
    losses = loss.values();
    for (std::int64_t first = 0; first < batch.columns; first += width) {
      const std::int64_t columns = count_of(first) + 8;
      const Filled<T> block(block_of(first));
      softmax_gradient(Device(), block.matrix(batch.rows, columns), softmax, targets.input(),
                       LogitBlock{first, count_of(first)}, 0.25F);
      const std::vector<float> values = block.values();
      for (std::int64_t n = 0; n < batch.rows; ++n) {
        std::copy_n(values.begin() + n * columns, count_of(first), gradient.begin() + n * batch.columns + first);
        for (std::int64_t pad = count_of(first); pad < columns; ++pad) {
          REQUIRE(values[static_cast<std::size_t>(n * columns + pad)] == 0.0F);
        }
      }
    }
  }
};

template <class T>
void check_by_blocks(const Batch<T>& batch, std::int64_t width) {
  CAPTURE(batch.columns, batch.spread, width);
  const ByBlocks<T> blocks(batch, width, batch.logits());
  const double tolerance = 2e-6 * std::max(1.0F, batch.spread);
  reference::require_near(blocks.losses, batch.losses(), tolerance);
  reference::require_near_in<T>(blocks.gradient, batch.gradient(0.25), tolerance);
}

}  // namespace

TEMPLATE_LIST_TEST_CASE("cross-entropy by blocks of the vocabulary agrees with plain loops", "[cross_entropy]",
                        reference::StoredTypes) {
  // Odd, and more than the 4096 columns that a GPU's block of threads reads at once.
  constexpr std::int64_t kLong = 4201;
  for (const auto& batch : {Batch<TestType>{7, 13, 1.0F}, {5, 32, 3.0F}, {3, 501, 5.0F}, {4, 65, 300.0F}}) {
    for (const std::int64_t width : {std::int64_t{1}, std::int64_t{8}, std::int64_t{64}, kLong}) {
      check_by_blocks(batch, width);
    }
  }
  check_by_blocks(Batch<TestType>{2, kLong + 10, 5.0F}, kLong);
}

TEMPLATE_LIST_TEST_CASE("cross-entropy by one block has the bits of cross-entropy", "[cross_entropy]",
                        reference::StoredTypes) {
  const Batch<TestType> batch{5, 77, 3.0F};
  const Filled<TestType> logits(batch.logits());
  const Filled<Token> targets(batch.targets());
  const Filled<float> losses(5);
  cross_entropy(Device(), losses.vector(), logits.matrix(5, 77), targets.input(), 77, 0.25F);
  const ByBlocks<TestType> blocks(batch, 80, batch.logits());
  REQUIRE(reference::same_bits(blocks.losses, losses.values()));
  REQUIRE(reference::same_bits(blocks.gradient, logits.values()));
}

TEMPLATE_LIST_TEST_CASE("a row whose target is ignored has no loss and no gradient, and changes no other row",
                        "[cross_entropy]", reference::StoredTypes) {
  const Batch<TestType> batch{6, 77, 3.0F};
  std::vector<Token> ids = batch.targets();
  for (const std::size_t n : {0, 3, 5}) ids[n] = kIgnoredTarget;
  const Filled<TestType> logits(batch.logits()), of_all(batch.logits());
  const Filled<Token> targets(ids), all_targets(batch.targets());
  const Filled<float> losses(6), forward(6), losses_of_all(6);
  cross_entropy_forward(Device(), forward.vector(), logits.input(6, 77), targets.input(), 77);
  cross_entropy(Device(), losses.vector(), logits.matrix(6, 77), targets.input(), 77, 0.25F);
  cross_entropy(Device(), losses_of_all.vector(), of_all.matrix(6, 77), all_targets.input(), 77, 0.25F);
  std::vector<float> expected_losses = losses_of_all.values();
  std::vector<float> expected = of_all.values();
  for (const std::size_t n : {0, 3, 5}) {
    expected_losses[n] = 0.0F;
    std::fill_n(expected.begin() + static_cast<std::ptrdiff_t>(77 * n), 77, 0.0F);
  }
  REQUIRE(reference::same_bits(losses.values(), expected_losses));
  REQUIRE(reference::same_bits(forward.values(), expected_losses));
  REQUIRE(reference::same_bits(logits.values(), expected));
  const ByBlocks<TestType> blocks(batch, 80, batch.logits(), ids);
  REQUIRE(reference::same_bits(blocks.losses, expected_losses));
  REQUIRE(reference::same_bits(blocks.gradient, expected));
}

TEST_CASE("by blocks, a NaN in any of them makes the row's loss a NaN", "[cross_entropy]") {
  const Batch<> batch{3, 40, 1.0F};
  for (const std::size_t bad : {40, 60, 79}) {
    std::vector<float> values = batch.logits();
    values[bad] = std::numeric_limits<float>::quiet_NaN();
    const ByBlocks<float> blocks(batch, 16, values);
    REQUIRE(std::isfinite(blocks.losses[0]));
    REQUIRE(std::isnan(blocks.losses[1]));
    REQUIRE(std::isfinite(blocks.losses[2]));
  }
}

TEMPLATE_LIST_TEST_CASE("cross-entropy agrees with plain loops", "[cross_entropy]", reference::StoredTypes) {
  check<TestType>({7, 13, 1.0F});
  check<TestType>({3, 1, 1.0F});
  check<TestType>({5, 32, 3.0F});
  check<TestType>({3, 5003, 5.0F});
}

TEMPLATE_LIST_TEST_CASE("cross-entropy of large logits stays finite", "[cross_entropy]", reference::StoredTypes) {
  check<TestType>({4, 65, 300.0F});
}

TEMPLATE_TEST_CASE("columns beyond the vocabulary count for nothing, and their gradient is zero", "[cross_entropy]",
                   float, Bfloat16) {
  const Batch<TestType> batch{5, 33, 3.0F};
  constexpr std::int64_t kColumns = 40;
  const std::vector<float> narrow = batch.logits();
  std::vector<float> wide(5 * kColumns, std::numeric_limits<float>::quiet_NaN());
  for (std::size_t n = 0; n < 5; ++n) std::copy_n(narrow.begin() + n * 33, 33, wide.begin() + n * kColumns);
  const Filled<TestType> expected(narrow), logits(wide);
  const Filled<Token> targets(batch.targets());
  const Filled<float> losses(5), forward(5), wanted(5);
  cross_entropy_forward(Device(), forward.vector(), logits.matrix(5, kColumns), targets.input(), 33);
  cross_entropy(Device(), losses.vector(), logits.matrix(5, kColumns), targets.input(), 33, 0.25F);
  cross_entropy(Device(), wanted.vector(), expected.matrix(5, 33), targets.input(), 33, 0.25F);
  REQUIRE(reference::same_bits(losses.values(), wanted.values()));
  REQUIRE(reference::same_bits(forward.values(), wanted.values()));
  for (std::size_t i = 0; i < wide.size(); ++i) {
    const std::size_t v = i % kColumns;
    REQUIRE(logits.values()[i] == (v < 33 ? expected.values()[i / kColumns * 33 + v] : 0.0F));
  }
}

TEST_CASE("cross-entropy of no rows does nothing", "[cross_entropy]") { check<float>({0, 13, 1.0F}); }

TEST_CASE("the reference gradient of cross-entropy agrees with central differences", "[cross_entropy]") {
  const Batch<> batch{2, 13, 2.0F};
  const std::vector<double> x = reference::in_double(batch.logits());
  const std::vector<Token> ids = batch.targets();
  const auto sum = [&](const std::vector<double>& at) {
    return plain_loss(at, 0, 13, static_cast<std::size_t>(ids[0])) +
           plain_loss(at, 13, 13, static_cast<std::size_t>(ids[1]));
  };
  const std::vector<double> gradient = batch.gradient(1.0);
  for (std::size_t i = 0; i < x.size(); ++i)
    REQUIRE(std::abs(reference::central_difference(sum, x, i) - gradient[i]) < 1e-8);
}

TEST_CASE("a row with a NaN has a NaN loss, and no other row has", "[cross_entropy]") {
  const Batch<> batch{3, 40, 1.0F};
  std::vector<float> values = batch.logits();
  values[45] = std::numeric_limits<float>::quiet_NaN();
  const Filled<float> logits(values);
  const Filled<Token> targets(batch.targets());
  const Filled<float> losses(batch.rows);
  cross_entropy(Device(), losses.vector(), logits.matrix(3, 40), targets.input(), 40, 1.0F);
  const std::vector<float> got = losses.values();
  REQUIRE(std::isfinite(got[0]));
  REQUIRE(std::isnan(got[1]));
  REQUIRE(std::isfinite(got[2]));
}

TEST_CASE("cross-entropy by chunks of rows has the bits of the whole", "[cross_entropy]") {
  const Batch<> batch{7, 77, 2.0F};
  const Filled<float> whole(batch.logits()), parts(batch.logits()), losses(7), part_losses(7);
  const Filled<Token> targets(batch.targets());
  cross_entropy(Device(), losses.vector(), whole.matrix(7, 77), targets.input(), 77, 0.5F);
  for (std::int64_t first = 0; first < 7; first += 3) {
    const std::int64_t rows = std::min<std::int64_t>(3, 7 - first);
    cross_entropy(Device(), slice(part_losses.vector(), first, rows),
                  as_matrix(slice(parts.vector(), first * 77, rows * 77), rows, 77),
                  slice(targets.input(), first, rows), 77, 0.5F);
  }
  REQUIRE(reference::same_bits(whole.values(), parts.values()));
  REQUIRE(reference::same_bits(losses.values(), part_losses.values()));
}

}  // namespace kozero::kernels
