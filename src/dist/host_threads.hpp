// SPDX-FileCopyrightText: The KoZeRO authors
// SPDX-License-Identifier: Apache-2.0
// host_threads.hpp: what the back ends do to host memory, on all threads of this rank.
#pragma once
#include <cstdint>

namespace kozero::dist {

/// out[i] = ((source_0[i] + source_1[i]) + source_2[i]) + ...  for i < extent. `out` may be one of the sources.
void sum_in_order(const float* const* sources, int num_sources, std::int64_t extent, float* out);

/// Copies `bytes` bytes between disjoint ranges; nothing where `to` is `from`.
void copy_bytes(void* to, const void* from, std::int64_t bytes);

}  // namespace kozero::dist
