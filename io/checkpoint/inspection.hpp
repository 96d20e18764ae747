// SPDX-FileCopyrightText: The KoZeRO authors
// SPDX-License-Identifier: Apache-2.0
// inspection.hpp: the tensors of a weights file or checkpoint: list, statistics, and differences between two files.
//   /parameters/<name>   /optimizer/<state>/<name>        parameters first, names sorted
//   norm = sqrt(sum x_i^2), least and largest, over the finite x_i; how many are not finite
//   x_i and y_i are equal if their bits are: NaN equals the same NaN, 0 is not -0
// A tensor is one rank's work. Squares are added in double in fixed blocks. So the results, which are on every rank, do
// not depend on the number of ranks. Denormals count with their exact value, whatever the processor flushes. A pattern
// is the shell's (fnmatch): * ? [a-z] over the full name, in which a slash is an ordinary character.
#pragma once
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <string>
#include <vector>

#include <kozero/distributed/communicator.hpp>
#include "io/hdf5/file.hpp"

namespace kozero::io {

struct ListedTensor {
  std::string name;  ///< "/parameters/wte.weight"
  std::vector<std::int64_t> shape;
  [[nodiscard]] std::int64_t extent() const;
};

/// Throws Error(input).
std::vector<ListedTensor> list_tensors(const Hdf5File& file);

/// The tensors whose names match the pattern; all for an empty pattern.
std::vector<ListedTensor> chosen_tensors(const std::vector<ListedTensor>& tensors, const std::string& pattern);

struct TensorStatistics {
  double norm = 0.0;
  double min = std::numeric_limits<double>::infinity();  ///< min > max: no value is finite
  double max = -std::numeric_limits<double>::infinity();
  std::int64_t non_finite = 0;
  bool operator==(const TensorStatistics&) const = default;
};

/// Memory: 16 MiB. Throws Error(input).
TensorStatistics statistics_of(const Hdf5Dataset& dataset, std::int64_t extent);

/// Statistics of all `tensors` of a file, in their order. Each rank has opened the file and reads its share.
/// Collective. Throws Error(input), seen by all ranks.
std::vector<TensorStatistics> statistics_of(distributed::Communicator& comm, const Hdf5File& file,
                                            const std::vector<ListedTensor>& tensors);

struct TensorDifference {
  std::int64_t count = 0;   ///< elements that differ
  std::int64_t first = -1;  ///< the first of them, counted row by row
  float a = 0.0F;           ///< its two values
  float b = 0.0F;
  double largest = 0.0;  ///< max |x_i - y_i|; NaN if a difference is NaN
};

/// The difference of two datasets of `extent` elements. Memory: 32 MiB. Throws Error(input).
TensorDifference difference_of(const Hdf5Dataset& a, const Hdf5Dataset& b, std::int64_t extent);

/// Differences of `tensors`, which both files have. Each rank has opened the files and reads its share. Collective.
/// Throws Error(input), seen by all ranks.
std::vector<TensorDifference> differences_of(distributed::Communicator& comm, const Hdf5File& a, const Hdf5File& b,
                                             const std::vector<ListedTensor>& tensors);

/// The index of an element in its tensor: 5 in (2, 3) -> {1, 2}.
std::vector<std::int64_t> index_of(std::int64_t element, const std::vector<std::int64_t>& shape);

}  // namespace kozero::io
