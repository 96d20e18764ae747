// SPDX-FileCopyrightText: The KoZeRO authors
// SPDX-License-Identifier: Apache-2.0
#include <functional>
#include <numeric>

#include <kozero/core/error.hpp>
#include <kozero/io/hyperslabs.hpp>

namespace kozero::io {

namespace {

class Cutter {
 public:
  explicit Cutter(const std::vector<std::int64_t>& shape) : shape_(shape) {}

  /// Cuts [begin, end) of the sub-array that lies behind the fixed leading coordinates.
  void cut(std::int64_t begin, std::int64_t end) {
    if (begin == end) return;
    const std::size_t dim = fixed_.size();
    const std::int64_t row = std::accumulate(shape_.begin() + static_cast<std::ptrdiff_t>(dim) + 1, shape_.end(),
                                             std::int64_t{1}, std::multiplies<>());
    const std::int64_t first_whole = (begin + row - 1) / row;
    const std::int64_t end_whole = end / row;
    if (first_whole > end_whole) {  // inside one row
      inside(end_whole, begin - end_whole * row, end - end_whole * row);
      return;
    }
    if (begin < first_whole * row) inside(first_whole - 1, begin - (first_whole - 1) * row, row);
    if (first_whole < end_whole) box(first_whole, end_whole - first_whole);
    if (end_whole * row < end) inside(end_whole, 0, end - end_whole * row);
  }

  std::vector<Hyperslab> boxes;

 private:
  void inside(std::int64_t coordinate, std::int64_t begin, std::int64_t end) {
    fixed_.push_back(coordinate);
    cut(begin, end);
    fixed_.pop_back();
  }

  void box(std::int64_t first, std::int64_t count) {
    Hyperslab slab{fixed_, std::vector<std::int64_t>(fixed_.size(), 1)};
    slab.offset.push_back(first);
    slab.count.push_back(count);
    slab.offset.resize(shape_.size(), 0);
    slab.count.insert(slab.count.end(), shape_.begin() + static_cast<std::ptrdiff_t>(slab.count.size()), shape_.end());
    boxes.push_back(std::move(slab));
  }

  std::vector<std::int64_t> shape_;
  std::vector<std::int64_t> fixed_;
};

}  // namespace

std::vector<Hyperslab> hyperslabs(const std::vector<std::int64_t>& shape, std::int64_t begin, std::int64_t end) {
  const std::int64_t extent = std::accumulate(shape.begin(), shape.end(), std::int64_t{1}, std::multiplies<>());
  require(!shape.empty() && 0 <= begin && begin <= end && end <= extent, "hyperslabs: range outside the array");
  Cutter cutter(shape);
  cutter.cut(begin, end);
  return std::move(cutter.boxes);
}

}  // namespace kozero::io
