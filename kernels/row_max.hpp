// SPDX-FileCopyrightText: The KoZeRO authors
// SPDX-License-Identifier: Apache-2.0
// row_max.hpp: the largest value of a row, by lanes on a host thread or by a GPU's warp; a stable softmax needs it.
// A NaN among the values is passed over; a row without values gives -infinity.
#pragma once
#include <cstdint>
#include <Kokkos_Core.hpp>

#include <kozero/kernels/rows.hpp>

namespace kozero::kernels {

/// The largest value(c) over c in [0, columns), on one host thread.
template <class Value>
KOKKOS_INLINE_FUNCTION float lane_max(std::int64_t columns, const Value& value) {
  float lanes[kLanes];
  for (int lane = 0; lane < kLanes; ++lane) lanes[lane] = -Kokkos::Experimental::infinity_v<float>;
  const auto keep_larger = [&](int lane, float x) { lanes[lane] = x > lanes[lane] ? x : lanes[lane]; };
  std::int64_t c = 0;
  for (; c + kLanes <= columns; c += kLanes) {
    for (int lane = 0; lane < kLanes; ++lane) keep_larger(lane, value(c + lane));
  }
  for (int lane = 0; c + lane < columns; ++lane) keep_larger(lane, value(c + lane));
  for (int lane = 1; lane < kLanes; ++lane) keep_larger(0, lanes[lane]);
  return lanes[0];
}

/// The largest x[c] over c in [0, columns), the same on all lanes of the worker.
template <class Team, class T>
KOKKOS_INLINE_FUNCTION float row_max(const Team& team, std::int64_t columns, const T* x) {
  KOKKOS_IF_ON_HOST(
      (static_cast<void>(team); return lane_max(columns, [=](std::int64_t c) { return static_cast<float>(x[c]); });))
  KOKKOS_IF_ON_DEVICE((const std::int64_t lanes = lanes_of(team); float largest = 0.0F; Kokkos::parallel_reduce(
                           columns_of(team, lanes),
                           [&](std::int64_t lane, float& so_far) {
                             const auto itself = [](float value) { return value; };
                             so_far = Largest::of(so_far, fold_share<Largest>(columns, lane, lanes, itself, x));
                           },
                           Kokkos::Max<float>(largest));
                       return largest;))
}

}  // namespace kozero::kernels
