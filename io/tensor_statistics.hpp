// SPDX-FileCopyrightText: The KoZeRO authors
// SPDX-License-Identifier: Apache-2.0
// tensor_statistics.hpp: what a stored tensor's values are like, read in pieces.
//   norm = sqrt(sum x_i^2), least and largest, over the finite x_i; how many are not finite
// Squares are added in double in fixed blocks, and a tensor is one rank's work: the same numbers on any rank count.
// Denormals count with their exact value, whatever the processor flushes.
#pragma once
#include <cstdint>
#include <limits>
#include <string>
#include <vector>

#include <kozero/dist/communicator.hpp>
#include <kozero/io/listed_tensors.hpp>

namespace kozero::io {

struct TensorStatistics {
  double norm = 0.0;
  double min = std::numeric_limits<double>::infinity();  ///< min > max: no value is finite
  double max = -std::numeric_limits<double>::infinity();
  std::int64_t non_finite = 0;
  bool operator==(const TensorStatistics&) const = default;
};

/// Memory: 16 MiB. Throws Error(input).
TensorStatistics statistics_of(const Hdf5Dataset& dataset, std::int64_t extent);

/// Of all `tensors` of a file, in their order. Each rank has opened the file by itself and reads its share. Collective.
/// Throws Error(input), seen by all ranks.
std::vector<TensorStatistics> statistics_of(dist::Communicator& comm, const Hdf5File& file,
                                            const std::vector<ListedTensor>& tensors);

}  // namespace kozero::io
