// SPDX-FileCopyrightText: The KoZeRO authors
// SPDX-License-Identifier: Apache-2.0
#include <catch2/catch_test_macros.hpp>

#include <functional>
#include <numeric>

#include "io/hdf5/file.hpp"

#include "thrown.hpp"

namespace kozero::io {

namespace {

/// The flat numbers of a box's elements, in row-major order of the box.
void append_elements(const std::vector<std::int64_t>& shape, const Hyperslab& slab, std::size_t dim, std::int64_t base,
                     std::vector<std::int64_t>& out) {
  if (dim == shape.size()) {
    out.push_back(base);
    return;
  }
  for (std::int64_t i = 0; i < slab.count[dim]; ++i) {
    append_elements(shape, slab, dim + 1, base * shape[dim] + slab.offset[dim] + i, out);
  }
}

}  // namespace

TEST_CASE("every flat range is at most 2d - 1 boxes that hold it in order") {
  for (const std::vector<std::int64_t>& shape :
       std::vector<std::vector<std::int64_t>>{{1}, {7}, {1, 5}, {5, 1}, {4, 5}, {2, 3, 4}, {3, 1, 4}, {2, 3, 2, 3}}) {
    const auto extent = std::accumulate(shape.begin(), shape.end(), std::int64_t{1}, std::multiplies<>());
    for (std::int64_t begin = 0; begin <= extent; ++begin) {
      for (std::int64_t end = begin; end <= extent; ++end) {
        std::vector<std::int64_t> found;
        const auto boxes = hyperslabs(shape, begin, end);
        for (const auto& box : boxes) append_elements(shape, box, 0, 0, found);
        std::vector<std::int64_t> wanted(static_cast<std::size_t>(end - begin));
        std::iota(wanted.begin(), wanted.end(), begin);
        REQUIRE(found == wanted);
        REQUIRE(boxes.size() <= 2 * shape.size() - 1);
      }
    }
  }
}

TEST_CASE("a range outside the array is refused") {
  CHECK(thrown_by([] { hyperslabs({4, 5}, 3, 21); }).status == 1);
  CHECK(thrown_by([] { hyperslabs({4, 5}, -1, 2); }).status == 1);
  CHECK(thrown_by([] { hyperslabs({}, 0, 1); }).status == 1);
}

}  // namespace kozero::io
