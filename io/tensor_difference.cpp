// SPDX-FileCopyrightText: The KoZeRO authors
// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>

#include <kozero/io/dealt_out.hpp>
#include <kozero/io/float_formats.hpp>
#include <kozero/io/tensor_difference.hpp>

namespace kozero::io {
namespace {

constexpr std::int64_t kPiece = 4 << 20;  ///< elements of each file read at once

/// Adds what differs between two pieces that begin at element `begin`.
void add_piece(const std::vector<float>& a, const std::vector<float>& b, std::int64_t begin, TensorDifference& all) {
  if (std::memcmp(a.data(), b.data(), a.size() * sizeof(float)) == 0) return;
  for (std::size_t i = 0; i < a.size(); ++i) {
    if (std::bit_cast<std::uint32_t>(a[i]) == std::bit_cast<std::uint32_t>(b[i])) continue;
    if (all.count == 0) {
      all.first = begin + static_cast<std::int64_t>(i);
      all.a = a[i];
      all.b = b[i];
    }
    ++all.count;
    const double distance = std::abs(exact_double(a[i]) - exact_double(b[i]));
    if (!std::isnan(all.largest) && !(distance <= all.largest)) all.largest = distance;
  }
}

/// Bits travel as whole numbers, which a double keeps; a signalling NaN would not survive as itself.
double bits_as_number(float value) { return static_cast<double>(std::bit_cast<std::uint32_t>(value)); }
float from_number(double bits) { return std::bit_cast<float>(static_cast<std::uint32_t>(bits)); }

}  // namespace

TensorDifference difference_of(const Hdf5Dataset& a, const Hdf5Dataset& b, std::int64_t extent) {
  TensorDifference all;
  std::vector<float> from_a;
  std::vector<float> from_b;
  for (std::int64_t first = 0; first < extent; first += kPiece) {
    const std::int64_t last = std::min(extent, first + kPiece);
    from_a.resize(static_cast<std::size_t>(last - first));
    from_b.resize(from_a.size());
    a.read(first, last, from_a.data());
    b.read(first, last, from_b.data());
    add_piece(from_a, from_b, first, all);
  }
  return all;
}

std::vector<TensorDifference> differences_of(dist::Communicator& comm, const Hdf5File& a, const Hdf5File& b,
                                             const std::vector<ListedTensor>& tensors) {
  const auto numbers = dealt_out(comm, tensors.size(), 5, [&](std::size_t item) -> std::vector<double> {
    const std::string& name = tensors[item].name;
    const auto one = difference_of(a.open_dataset(name), b.open_dataset(name), tensors[item].extent());
    return {static_cast<double>(one.count), static_cast<double>(one.first), bits_as_number(one.a),
            bits_as_number(one.b), one.largest};
  });
  std::vector<TensorDifference> all;
  for (const auto& one : numbers) {
    all.push_back({static_cast<std::int64_t>(one[0]), static_cast<std::int64_t>(one[1]), from_number(one[2]),
                   from_number(one[3]), one[4]});
  }
  return all;
}

std::vector<std::int64_t> place_of(std::int64_t element, const std::vector<std::int64_t>& shape) {
  std::vector<std::int64_t> place(shape.size());
  for (std::size_t dim = shape.size(); dim-- > 0;) {
    place[dim] = element % shape[dim];
    element /= shape[dim];
  }
  return place;
}

}  // namespace kozero::io
