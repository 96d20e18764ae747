// SPDX-FileCopyrightText: The KoZeRO authors
// SPDX-License-Identifier: Apache-2.0
// dropout.hpp: elements set to zero at random, the kept ones scaled by 1 / (1 - p), in place.
//   word = philox(key, counter_of(t * C + c, sample_ids(b)))[0]      x (N, C), row n = b * T + t
//   x = uniform_of(word) >= p ? x / (1 - p) : 0
// No mask is stored: the same call on the gradient is the backward. An element's fate depends on key, sample, position
// and channel alone, not on ranks, threads or the batch it is in. p in [0, 1). Returns without fencing. Srivastava et
// al., JMLR 15, 2014.
#pragma once
#include <kozero/core/error.hpp>
#include <kozero/core/random.hpp>
#include <kozero/core/views.hpp>
#include "kernels/launch/for_each.hpp"

namespace kozero::kernels {

template <class Space, class T>
static void dropout(const Space& space, Matrix<T> x, Vector<const std::uint64_t> sample_ids, std::int64_t positions,
                    float p, std::uint64_t key) {
  const auto rows = static_cast<std::int64_t>(x.extent(0));
  const auto columns = static_cast<std::int64_t>(x.extent(1));
  require(p >= 0.0F && p < 1.0F, "dropout: p is not in [0, 1)");
  require(static_cast<std::int64_t>(sample_ids.extent(0)) * positions == rows,
          "dropout: sample_ids (B) and T do not fit x (B*T, C)");
  if (p == 0.0F) return;
  const float scale = 1.0F / (1.0F - p);
  for_each_row(
      space, "kozero::dropout", rows, KOKKOS_LAMBDA(const RowTeam<Space>& team, std::int64_t n) {
        const std::uint64_t sample = sample_ids(n / positions);
        const auto first = static_cast<std::uint64_t>(n % positions * columns);
        T* const row = row_of(x, n);
        const auto dropped = [=](Column c, float value) {
          const Words4 words = philox(key, counter_of(first + static_cast<std::uint64_t>(c.index), sample));
          return uniform_of(words.x[0]) >= p ? scale * value : 0.0F;
        };
        assign_row<1>(team, row, columns, dropped, row);  // bound by its arithmetic
      });
}

}  // namespace kozero::kernels
