// SPDX-FileCopyrightText: The KoZeRO authors
// SPDX-License-Identifier: Apache-2.0
// heap_peak.hpp: the program's largest number of bytes in use from operator new since the last reset.
#pragma once
#include <cstdint>

namespace kozero::tests {

void reset_heap_peak();
/// The largest number of bytes beyond those in use at the reset.
std::int64_t heap_peak();

}  // namespace kozero::tests
