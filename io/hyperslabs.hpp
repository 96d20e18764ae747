// SPDX-FileCopyrightText: The KoZeRO authors
// SPDX-License-Identifier: Apache-2.0
// hyperslabs.hpp: a flat range of a row-major array as boxes of its dimensions: pure arithmetic.
//   shape (4, 5), flat [3, 17)  ->  row 0 columns 3-4 | rows 1-2 | row 3 columns 0-1
// At most 2d - 1 boxes for d dimensions; they are disjoint and, in order, hold the range's elements in order.
#pragma once
#include <cstdint>
#include <vector>

namespace kozero::io {

struct Hyperslab {
  std::vector<std::int64_t> offset, count;
};

/// Boxes of [begin, end); none where the range is empty. A range outside the array is an internal error.
std::vector<Hyperslab> hyperslabs(const std::vector<std::int64_t>& shape, std::int64_t begin, std::int64_t end);

}  // namespace kozero::io
