// SPDX-FileCopyrightText: The KoZeRO authors
// SPDX-License-Identifier: Apache-2.0
// chunks.hpp: a tensor of any size in pieces of at most 16 MiB of f32, so that memory does not grow with the model.
#pragma once
#include <algorithm>
#include <cstdint>

namespace kozero::exchange {

inline constexpr std::int64_t kChunk = 4 << 20;  ///< elements

/// Calls visit(first, count) for consecutive pieces of [0, extent).
template <class Visit>
void for_each_chunk(std::int64_t extent, Visit visit) {
  for (std::int64_t first = 0; first < extent; first += kChunk) visit(first, std::min(kChunk, extent - first));
}

}  // namespace kozero::exchange
