// SPDX-FileCopyrightText: The KoZeRO authors
// SPDX-License-Identifier: Apache-2.0
// inspection.cpp: lists tensors by name, and computes statistics and differences chunk by chunk, in fixed blocks.
#include <fnmatch.h>
#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>

#include <kozero/distributed/agreement.hpp>
#include "io/checkpoint/inspection.hpp"
#include "io/safetensors/float_formats.hpp"

namespace kozero::io {
namespace {

void add_group(std::vector<ListedTensor>& tensors, const Hdf5File& file, const std::string& group) {
  for (const auto& name : file.names(group)) {
    const std::string full = group + "/" + name;
    tensors.push_back({full, file.open_dataset(full).shape()});
  }
}

constexpr std::int64_t kChunk = 4 << 20;  ///< elements read at once: a multiple of kBlock
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

/// Adds the differences of two chunks that begin at element `begin`.
void add_chunk(const std::vector<float>& a, const std::vector<float>& b, std::int64_t begin, TensorDifference& all) {
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

}  // namespace

std::int64_t ListedTensor::extent() const {
  std::int64_t extent = 1;
  for (const std::int64_t dim : shape) extent *= dim;
  return extent;
}

std::vector<ListedTensor> list_tensors(const Hdf5File& file) {
  std::vector<ListedTensor> tensors;
  add_group(tensors, file, "/parameters");
  if (!file.has_group("optimizer")) return tensors;
  for (const auto& state : file.names("/optimizer")) add_group(tensors, file, "/optimizer/" + state);
  return tensors;
}

std::vector<ListedTensor> chosen_tensors(const std::vector<ListedTensor>& tensors, const std::string& pattern) {
  if (pattern.empty()) return tensors;
  std::vector<ListedTensor> chosen;
  for (const auto& tensor : tensors) {
    if (::fnmatch(pattern.c_str(), tensor.name.c_str(), 0) == 0) chosen.push_back(tensor);
  }
  return chosen;
}

TensorStatistics statistics_of(const Hdf5Dataset& dataset, std::int64_t extent) {
  TensorStatistics all;
  double squares = 0.0;
  std::vector<float> chunk(static_cast<std::size_t>(std::min(kChunk, extent)));
  for (std::int64_t first = 0; first < extent; first += kChunk) {
    const std::int64_t count = std::min(kChunk, extent - first);
    dataset.read(first, first + count, chunk.data());
    for (std::int64_t block = 0; block < count; block += kBlock) {
      squares += add_block(chunk.data() + block, std::min(kBlock, count - block), all);
    }
  }
  all.norm = std::sqrt(squares);
  return all;
}

std::vector<TensorStatistics> statistics_of(distributed::Communicator& comm, const Hdf5File& file,
                                            const std::vector<ListedTensor>& tensors) {
  return distributed::map_over_ranks(comm, tensors.size(), [&](std::size_t item) {
    return statistics_of(file.open_dataset(tensors[item].name), tensors[item].extent());
  });
}

TensorDifference difference_of(const Hdf5Dataset& a, const Hdf5Dataset& b, std::int64_t extent) {
  TensorDifference all;
  std::vector<float> from_a;
  std::vector<float> from_b;
  for (std::int64_t first = 0; first < extent; first += kChunk) {
    const std::int64_t last = std::min(extent, first + kChunk);
    from_a.resize(static_cast<std::size_t>(last - first));
    from_b.resize(from_a.size());
    a.read(first, last, from_a.data());
    b.read(first, last, from_b.data());
    add_chunk(from_a, from_b, first, all);
  }
  return all;
}

std::vector<TensorDifference> differences_of(distributed::Communicator& comm, const Hdf5File& a, const Hdf5File& b,
                                             const std::vector<ListedTensor>& tensors) {
  return distributed::map_over_ranks(comm, tensors.size(), [&](std::size_t item) {
    const std::string& name = tensors[item].name;
    return difference_of(a.open_dataset(name), b.open_dataset(name), tensors[item].extent());
  });
}

std::vector<std::int64_t> index_of(std::int64_t element, const std::vector<std::int64_t>& shape) {
  std::vector<std::int64_t> index(shape.size());
  for (std::size_t dim = shape.size(); dim-- > 0;) {
    index[dim] = element % shape[dim];
    element /= shape[dim];
  }
  return index;
}

}  // namespace kozero::io
