// SPDX-FileCopyrightText: The KoZeRO authors
// SPDX-License-Identifier: Apache-2.0
// unit_range.hpp: a contiguous part of a unit, and where a rank keeps it in an array of its own.
#pragma once
#include <cstdint>

namespace kozero {

/// Elements [begin, begin + extent) of unit `unit`, kept at [first, first + extent) of the owner's flat array.
struct UnitRange {
  int unit = 0;
  std::int64_t begin = 0;
  std::int64_t extent = 0;
  std::int64_t first = 0;
};

}  // namespace kozero
