// SPDX-FileCopyrightText: The KoZeRO authors
// SPDX-License-Identifier: Apache-2.0
// counted_communicator.cpp: the bytes of each collective follow from the partition.
#include <chrono>
#include <utility>

#include <kozero/dist/counted_communicator.hpp>

namespace kozero::dist {
namespace {

/// Adds the seconds of its life to a row.
class Stopwatch {
 public:
  explicit Stopwatch(CollectiveCount& row) : row_(row) {}
  ~Stopwatch() { row_.seconds += std::chrono::duration<double>(Clock::now() - start_).count(); }
  Stopwatch(const Stopwatch&) = delete;
  Stopwatch& operator=(const Stopwatch&) = delete;

 private:
  using Clock = std::chrono::steady_clock;
  CollectiveCount& row_;
  Clock::time_point start_ = Clock::now();
};

void count(CollectiveCount& row, std::int64_t elements, std::size_t element_size) {
  row.bytes += elements * static_cast<std::int64_t>(element_size);
  ++row.calls;
}

}  // namespace

Pending CountedCommunicator::start_reduce_scatter(const float* full, float* slice, const Partition& partition) {
  CollectiveCount& mine = row(Collective::reduce_scatter);
  const Stopwatch watch(mine);
  const Pending pending = inner().start_reduce_scatter(full, slice, partition);
  count(mine, partition.extent() - partition.size(rank()), sizeof(float));
  return pending;
}

Pending CountedCommunicator::start_all_gather(const void* slice, void* full, const Partition& partition,
                                              std::size_t element_size) {
  CollectiveCount& mine = row(Collective::all_gather);
  const Stopwatch watch(mine);
  const Pending pending = inner().start_all_gather(slice, full, partition, element_size);
  count(mine, partition.size(rank()) * (size() - 1), element_size);
  return pending;
}

void CountedCommunicator::finish(Pending pending) {
  const Stopwatch watch(row(pending.collective));
  inner().finish(pending);
}

void CountedCommunicator::reclaim(Pending pending) {
  const Stopwatch watch(row(pending.collective));
  inner().reclaim(pending);
}

void CountedCommunicator::reset() {
  for (auto& row : counts_) row = CollectiveCount{row.collective};
}

}  // namespace kozero::dist
