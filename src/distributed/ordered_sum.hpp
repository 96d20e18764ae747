// SPDX-FileCopyrightText: The KoZeRO authors
// SPDX-License-Identifier: Apache-2.0
// ordered_sum.hpp: functor that adds received addends in rank order, run on a stream.
//   out[i] = (((onto[i] + x_0[i]) + x_1[i]) + ...)     x_own is `own`; `received` has the others in rank order
// Elements are independent: `out` may be `onto` or `own`. This header is separate because sources without Kokkos
// include device_stream.hpp.
#pragma once
#include <cstdint>

#include <kozero/core/views.hpp>
#include "src/distributed/nccl/device_stream.hpp"

namespace kozero::distributed {

struct OrderedSum {
  float* out = nullptr;
  const float* onto = nullptr;  ///< nullptr: the sum begins with x_0
  const float* own = nullptr;
  const float* received = nullptr;
  std::int64_t stride = 0;  ///< from one received addend to the next
  int own_index = 0;        ///< >= num_addends: `own` is not an addend
  int num_addends = 1;
  std::int64_t extent = 0;

  [[nodiscard]] KOKKOS_INLINE_FUNCTION float addend(int index, std::int64_t i) const {
    return index == own_index ? own[i] : received[(index - (index > own_index ? 1 : 0)) * stride + i];
  }
  KOKKOS_INLINE_FUNCTION void operator()(std::int64_t i) const {
    float sum = addend(0, i);
    if (onto != nullptr) sum = onto[i] + sum;
    for (int index = 1; index < num_addends; ++index) sum += addend(index, i);
    out[i] = sum;
  }
};

}  // namespace kozero::distributed
