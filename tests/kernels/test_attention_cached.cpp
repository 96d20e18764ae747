// SPDX-FileCopyrightText: The KoZeRO authors
// SPDX-License-Identifier: Apache-2.0
// test_attention_cached.cpp: attention over a cache against a plain loop in double: sequences of several lengths, heads
// that share keys, several chunks of positions.
#include <catch2/generators/catch_generators.hpp>

#include "kernels/attention/attention_cached.hpp"

#include "reference.hpp"

namespace kozero::kernels {
namespace {

using reference::Filled;

struct CachedCase {
  std::int64_t sequences, positions, heads, kv_heads, head_dim;

  [[nodiscard]] CacheShape cache() const { return {sequences, CacheShape::whole_tiles(positions), kv_heads, head_dim}; }
  [[nodiscard]] AttentionShape shape(std::int64_t rows) const {
    AttentionShape shape;
    shape.batch = rows;
    shape.positions = 1;
    shape.heads = heads;
    shape.kv_heads = kv_heads;
    shape.head_dim = head_dim;
    return shape;
  }
  [[nodiscard]] std::int64_t columns() const { return (heads + 2 * kv_heads) * head_dim; }
};

/// One row's y in double; `qkv` holds all positions of the row's sequence.
std::vector<double> plain_row(const CachedCase& of, const std::vector<float>& qkv, std::int64_t position) {
  const auto at = [&](std::int64_t row, std::int64_t head, std::int64_t d) {
    return static_cast<double>(qkv[static_cast<std::size_t>(row * of.columns() + head * of.head_dim + d)]);
  };
  std::vector<double> y;
  for (std::int64_t h = 0; h < of.heads; ++h) {
    const std::int64_t kv = h / (of.heads / of.kv_heads);
    std::vector<double> weights;
    double sum = 0.0;
    for (std::int64_t j = 0; j <= position; ++j) {
      double score = 0.0;
      for (std::int64_t d = 0; d < of.head_dim; ++d) score += at(position, h, d) * at(j, of.heads + kv, d);
      weights.push_back(std::exp(score / std::sqrt(static_cast<double>(of.head_dim))));
      sum += weights.back();
    }
    for (std::int64_t d = 0; d < of.head_dim; ++d) {
      double value = 0.0;
      for (std::int64_t j = 0; j <= position; ++j) {
        value += weights[static_cast<std::size_t>(j)] / sum * at(j, of.heads + of.kv_heads + kv, d);
      }
      y.push_back(value);
    }
  }
  return y;
}

}  // namespace

TEMPLATE_LIST_TEST_CASE("cached attention agrees with a plain loop", "[attention]", reference::StoredTypes) {
  const CachedCase of = GENERATE(CachedCase{3, 7, 3, 3, 5}, CachedCase{2, 40, 6, 2, 13}, CachedCase{1, 600, 2, 1, 64},
                                 CachedCase{2, 33, 4, 4, 32});
  const CacheShape cache = of.cache();
  const Filled<TestType> keys(cache.extent()), values(cache.extent());
  const CachedHeads<TestType> heads{keys.vector(), values.vector()};

  for (std::int64_t b = 0; b < of.sequences; ++b) {
    // The sequence in blocks: all rows of a block are appended before any attends.
    const auto numbers = reference::numbers<TestType>(of.positions * of.columns(), 5 + static_cast<std::uint64_t>(b));
    const Filled<TestType> qkv(numbers);
    const std::int64_t block = 11;
    for (std::int64_t first = 0; first < of.positions; first += block) {
      const std::int64_t rows = std::min(block, of.positions - first);
      std::vector<std::int32_t> row_positions, owners(static_cast<std::size_t>(rows), static_cast<std::int32_t>(b));
      for (std::int64_t i = 0; i < rows; ++i) row_positions.push_back(static_cast<std::int32_t>(first + i));
      const Filled<std::int32_t> positions(row_positions), sequences(owners);
      const RowPositions at{sequences.input(), positions.input()};
      const auto part = as_matrix(slice(qkv.input(), first * of.columns(), rows * of.columns()), rows, of.columns());
      const Filled<TestType> y(rows * of.heads * of.head_dim);
      const Filled<float> workspace(cached_attention_workspace(cache, rows, of.heads));

      append_to_cache<Device, TestType>(Device(), heads, cache, part, at, of.shape(rows));
      attention_cached<Device, TestType>(Device(), y.matrix(rows, of.heads * of.head_dim), part, heads, cache, at,
                                         of.shape(rows), workspace.vector());
      Device().fence();
      std::vector<double> expected;
      for (std::int64_t i = 0; i < rows; ++i) {
        const auto row = plain_row(of, numbers, first + i);
        expected.insert(expected.end(), row.begin(), row.end());
      }
      reference::require_near_in<TestType>(y.values(), expected, 2e-6);
    }
  }
}

}  // namespace kozero::kernels
