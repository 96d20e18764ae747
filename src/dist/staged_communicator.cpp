// SPDX-FileCopyrightText: The KoZeRO authors
// SPDX-License-Identifier: Apache-2.0
// staged_communicator.cpp: pieces of every slice, side by side in the staging buffer, as a small array of their own.
#include <algorithm>
#include <utility>

#include <kozero/core/error.hpp>
#include <kozero/core/views.hpp>
#include <kozero/dist/staged_communicator.hpp>

#include "pieces.hpp"

namespace kozero::dist {
namespace {

constexpr std::int64_t kLargestElement = sizeof(double);

void to_host(char* host, const void* device, std::int64_t bytes) {
  if (bytes == 0) return;
  const auto extent = static_cast<std::size_t>(bytes);
  Kokkos::deep_copy(HostVector<char>(host, extent), Vector<const char>(static_cast<const char*>(device), extent));
}

void to_device(void* device, const char* host, std::int64_t bytes) {
  if (bytes == 0) return;
  const auto extent = static_cast<std::size_t>(bytes);
  Kokkos::deep_copy(Vector<char>(static_cast<char*>(device), extent), HostVector<const char>(host, extent));
}

}  // namespace

std::int64_t StagedCommunicator::buffer_bytes(int size, std::int64_t staging_bytes) {
  return std::max(staging_bytes, size * kAlignment * kLargestElement);
}

StagedCommunicator::StagedCommunicator(std::unique_ptr<Communicator> inner, MemoryLedger& ledger,
                                       std::int64_t staging_bytes)
    : CommunicatorDecorator(std::move(inner)) {
  const std::int64_t bytes = buffer_bytes(size(), staging_bytes);
  ledger.book(Memory::staging, "communication staging", bytes);
  buffer_ = decltype(buffer_)("kozero::dist::staged", static_cast<std::size_t>(bytes));
}

std::int64_t StagedCommunicator::piece_extent(std::size_t element_size) const {
  return dist::piece_extent(static_cast<std::int64_t>(buffer_.extent(0)), size(),
                            static_cast<std::int64_t>(element_size));
}

Pending StagedCommunicator::start_reduce_scatter(const float* full, float* slice, const Partition& partition) {
  constexpr std::int64_t kElement = sizeof(float);
  require(partition.num_ranks() == size(), "staged reduce_scatter: a partition for another number of ranks");
  const Pieces pieces(partition, piece_extent(sizeof(float)));
  const Partition staged(pieces.extent() * size(), size());
  auto* host = reinterpret_cast<float*>(buffer_.data());
  float* own = host + staged.begin(rank());
  for (std::int64_t k = 0; k < pieces.count(); ++k) {
    for (int r = 0; r < size(); ++r) {
      to_host(reinterpret_cast<char*>(host + staged.begin(r)), full + pieces.begin(r, k), pieces.size(r, k) * kElement);
    }
    inner().reduce_scatter(host, own, staged);
    to_device(slice + k * pieces.extent(), reinterpret_cast<const char*>(own), pieces.size(rank(), k) * kElement);
  }
  return {Collective::reduce_scatter};
}

Pending StagedCommunicator::start_all_gather(const void* slice, void* full, const Partition& partition,
                                             std::size_t element_size) {
  const auto element = static_cast<std::int64_t>(element_size);
  require(partition.num_ranks() == size(), "staged all_gather: a partition for another number of ranks");
  const Pieces pieces(partition, piece_extent(element_size));
  const Partition staged(pieces.extent() * size(), size());
  char* own = buffer_.data() + staged.begin(rank()) * element;
  for (std::int64_t k = 0; k < pieces.count(); ++k) {
    to_host(own, static_cast<const char*>(slice) + k * pieces.extent() * element, pieces.size(rank(), k) * element);
    inner().all_gather(own, buffer_.data(), staged, element_size);
    for (int r = 0; r < size(); ++r) {
      to_device(static_cast<char*>(full) + pieces.begin(r, k) * element, buffer_.data() + staged.begin(r) * element,
                pieces.size(r, k) * element);
    }
  }
  return {Collective::all_gather};
}

}  // namespace kozero::dist
