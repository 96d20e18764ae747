// SPDX-FileCopyrightText: The KoZeRO authors
// SPDX-License-Identifier: Apache-2.0
// heap_peak.hpp: the most bytes that operator new had given out at once since the last reset, in this whole program.
#pragma once
#include <cstdint>

namespace kozero::tests {

void reset_heap_peak();
/// Beyond what was in use at the reset.
std::int64_t heap_peak();

}  // namespace kozero::tests
