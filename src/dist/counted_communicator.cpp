// SPDX-FileCopyrightText: The KoZeRO authors
// SPDX-License-Identifier: Apache-2.0
// counted_communicator.cpp: the bytes of each collective follow from the partition.
#include <chrono>
#include <utility>

#include <kozero/dist/counted_communicator.hpp>

namespace kozero::dist {
namespace {

template <class Call>
void count(CollectiveCount& row, std::int64_t bytes, const Call& call) {
  const auto start = std::chrono::steady_clock::now();
  call();
  row.seconds += std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  row.bytes += bytes;
  ++row.calls;
}

}  // namespace

void CountedCommunicator::reduce_scatter(const float* full, float* slice, const Partition& partition) {
  const std::int64_t elements = partition.extent() - partition.size(rank());
  count(counts_[0], elements * static_cast<std::int64_t>(sizeof(float)),
        [&] { inner().reduce_scatter(full, slice, partition); });
}

void CountedCommunicator::all_gather(const void* slice, void* full, const Partition& partition,
                                     std::size_t element_size) {
  const std::int64_t elements = partition.size(rank()) * (size() - 1);
  count(counts_[1], elements * static_cast<std::int64_t>(element_size),
        [&] { inner().all_gather(slice, full, partition, element_size); });
}

void CountedCommunicator::reset() {
  for (auto& row : counts_) row = CollectiveCount{row.collective};
}

}  // namespace kozero::dist
