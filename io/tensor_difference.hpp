// SPDX-FileCopyrightText: The KoZeRO authors
// SPDX-License-Identifier: Apache-2.0
// tensor_difference.hpp: where two stored tensors of one shape differ in bits, read in pieces.
//   x_i and y_i are equal where their bits are: NaN equals the same NaN, 0 is not -0
// A tensor is one rank's work: the same answer on any rank count.
#pragma once
#include <cstdint>
#include <vector>

#include <kozero/dist/communicator.hpp>
#include <kozero/io/listed_tensors.hpp>

namespace kozero::io {

struct TensorDifference {
  std::int64_t count = 0;   ///< elements that differ
  std::int64_t first = -1;  ///< the first of them, counted row by row
  float a = 0.0F;           ///< its two values
  float b = 0.0F;
  double largest = 0.0;     ///< max |x_i - y_i|, NaN where a difference is
};

/// Of a dataset of each file; `extent` elements in both. Memory: 32 MiB. Throws Error(input).
TensorDifference difference_of(const Hdf5Dataset& a, const Hdf5Dataset& b, std::int64_t extent);

/// Of `tensors`, which both files hold. Each rank has opened the files by itself and reads its share. Collective.
/// Throws Error(input), seen by all ranks.
std::vector<TensorDifference> differences_of(dist::Communicator& comm, const Hdf5File& a, const Hdf5File& b,
                                             const std::vector<ListedTensor>& tensors);

/// The place of an element in its tensor: 5 in (2, 3) -> {1, 2}.
std::vector<std::int64_t> place_of(std::int64_t element, const std::vector<std::int64_t>& shape);

}  // namespace kozero::io
