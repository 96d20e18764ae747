// SPDX-FileCopyrightText: The KoZeRO authors
// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <cmath>

#include <kozero/io/dealt_out.hpp>
#include <kozero/io/float_formats.hpp>
#include <kozero/io/tensor_statistics.hpp>

namespace kozero::io {
namespace {

constexpr std::int64_t kPiece = 4 << 20;  ///< elements read at once: a multiple of kBlock
constexpr std::int64_t kBlock = 4096;     ///< elements of a partial sum

/// Adds the block's values; returns the sum of their squares.
double add_block(const float* values, std::int64_t count, TensorStatistics& all) {
  double squares = 0.0;
  for (std::int64_t i = 0; i < count; ++i) {
    if (!is_finite(values[i])) {
      ++all.non_finite;
      continue;
    }
    const double value = exact_double(values[i]);
    squares += value * value;
    all.min = std::min(all.min, value);
    all.max = std::max(all.max, value);
  }
  return squares;
}

}  // namespace

TensorStatistics statistics_of(const Hdf5Dataset& dataset, std::int64_t extent) {
  TensorStatistics all;
  double squares = 0.0;
  std::vector<float> piece(static_cast<std::size_t>(std::min(kPiece, extent)));
  for (std::int64_t first = 0; first < extent; first += kPiece) {
    const std::int64_t count = std::min(kPiece, extent - first);
    dataset.read(first, first + count, piece.data());
    for (std::int64_t block = 0; block < count; block += kBlock) {
      squares += add_block(piece.data() + block, std::min(kBlock, count - block), all);
    }
  }
  all.norm = std::sqrt(squares);
  return all;
}

std::vector<TensorStatistics> statistics_of(dist::Communicator& comm, const Hdf5File& file,
                                            const std::vector<ListedTensor>& tensors) {
  const auto numbers = dealt_out(comm, tensors.size(), 4, [&](std::size_t item) -> std::vector<double> {
    const auto one = statistics_of(file.open_dataset(tensors[item].name), tensors[item].extent());
    return {one.norm, one.min, one.max, static_cast<double>(one.non_finite)};
  });
  std::vector<TensorStatistics> all;
  for (const auto& one : numbers) all.push_back({one[0], one[1], one[2], static_cast<std::int64_t>(one[3])});
  return all;
}

}  // namespace kozero::io
