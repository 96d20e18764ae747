// SPDX-FileCopyrightText: The KoZeRO authors
// SPDX-License-Identifier: Apache-2.0
// communicator_decorators.cpp: calls gathered and compared with rank 0's, bytes counted from the partition, staging
// (the k-th chunks of all shards lie side by side in the buffer, as a small array), and the delays of a simulated link.
#include <sys/prctl.h>
#include <algorithm>
#include <array>
#include <thread>
#include <utility>

#include <kozero/core/error.hpp>
#include <kozero/core/events.hpp>
#include <kozero/core/views.hpp>
#include <kozero/distributed/agreement.hpp>
#include <kozero/distributed/communicator_decorators.hpp>
#include "src/distributed/chunks.hpp"

namespace kozero::distributed {

namespace {

/// A rank's call, compared with rank 0's.
struct Called {
  std::int64_t call = 0;
  std::int64_t count = 0;  // < 0: may differ between ranks
  std::int64_t element_size = 0;
  std::int64_t ranks = 0;  // number of ranks whose arrays are added; 0: all, or no sum
  bool operator==(const Called&) const = default;
};

std::string words(const Called& called) {
  constexpr std::array<const char*, 8> kNames = {"reduce_scatter", "reduce_scatter onto a shard",
                                                 "all_gather",     "share",
                                                 "barrier",        "gather_control",
                                                 "sum_control",    "broadcast_control"};
  std::string name = kNames.at(static_cast<std::size_t>(called.call));
  if (called.ranks > 0) name += " over " + std::to_string(called.ranks) + (called.ranks == 1 ? " rank" : " ranks");
  if (called.count < 0) return name;
  const std::string elements = called.element_size == 1 ? "" : " elements of " + std::to_string(called.element_size);
  return name + " of " + std::to_string(called.count) + elements + " bytes";
}

/// An event that adds its seconds, and the seconds that `comm` waited during it, to a row.
class Stopwatch {
 public:
  Stopwatch(CollectiveCount& row, const Communicator& comm, const Event& call)
      : row_(row), comm_(comm), waited_before_(comm.waited_s().value_or(0.0)), event_(call) {}
  ~Stopwatch() {
    row_.seconds += event_.seconds();
    if (row_.waited) *row_.waited += comm_.waited_s().value_or(0.0) - waited_before_;
  }
  Stopwatch(const Stopwatch&) = delete;
  Stopwatch& operator=(const Stopwatch&) = delete;

 private:
  CollectiveCount& row_;
  const Communicator& comm_;
  double waited_before_;
  EventScope event_;
};

/// `across` of the elements go to other groups.
void count(CollectiveCount& row, std::int64_t elements, std::int64_t across, std::size_t element_size) {
  row.bytes += elements * static_cast<std::int64_t>(element_size);
  row.bytes_across += across * static_cast<std::int64_t>(element_size);
  ++row.calls;
}

/// Of the full array.
std::int64_t bytes_of(const Partition& partition, std::size_t element_size) {
  return partition.extent() * static_cast<std::int64_t>(element_size);
}

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

void CheckedCommunicator::check(Call call, std::int64_t count, std::size_t element_size, int ranks) {
  const Called mine{static_cast<std::int64_t>(call), count, static_cast<std::int64_t>(element_size),
                    ranks == size() ? 0 : ranks};
  const std::vector<Called> all = from_all_ranks(*checks_, mine);
  for (std::size_t r = 1; r < all.size(); ++r) {
    if (all[r] == all[0]) continue;
    throw Error(Failure::internal,
                "the ranks call different collectives of " + name() + ": rank 0 " + words(all[0]) + ", rank " +
                    std::to_string(r) + " " + words(all[r]),
                Error::Seen::by_all_ranks);
  }
}

Pending CheckedCommunicator::start_reduce_scatter(const float* full, float* shard, const Partition& partition,
                                                  Fold fold) {
  check(fold.onto ? Call::reduce_scatter_onto : Call::reduce_scatter, partition.extent(), sizeof(float), fold.ranks);
  return inner().start_reduce_scatter(full, shard, partition, fold);
}

Pending CheckedCommunicator::start_all_gather(const void* shard, void* full, const Partition& partition,
                                              std::size_t element_size) {
  check(Call::all_gather, partition.extent(), element_size);
  return inner().start_all_gather(shard, full, partition, element_size);
}

void* CheckedCommunicator::share(const std::string& label, std::int64_t bytes) {
  check(Call::share, -1, 0);  // sizes may differ between ranks
  return inner().share(label, bytes);
}

void CheckedCommunicator::barrier() {
  check(Call::barrier, -1, 0);
  inner().barrier();
}

std::vector<std::byte> CheckedCommunicator::gather_control(std::span<const std::byte> mine) {
  check(Call::gather_control, static_cast<std::int64_t>(mine.size()), 1);
  return inner().gather_control(mine);
}

std::vector<std::uint64_t> CheckedCommunicator::sum_control(std::span<const std::uint64_t> mine) {
  check(Call::sum_control, static_cast<std::int64_t>(mine.size()), sizeof(std::uint64_t));
  return inner().sum_control(mine);
}

std::string CheckedCommunicator::broadcast_control(const std::string& bytes) {
  check(Call::broadcast_control, -1, 0);
  return inner().broadcast_control(bytes);
}

void CollectiveCounts::reset() {
  for (CollectiveCount& row : rows_) {
    row = CollectiveCount{row.collective};
    if (has_waits_) row.waited = 0.0;
  }
}

void CollectiveCounts::forgo_waits() {
  has_waits_ = false;
  for (CollectiveCount& row : rows_) row.waited = std::nullopt;
}

CountedCommunicator::CountedCommunicator(std::unique_ptr<Communicator> inner, int ranks_per_group,
                                         std::shared_ptr<CollectiveCounts> counts, const char* joins)
    : CommunicatorDecorator(std::move(inner)),
      counts_(std::move(counts)),
      joins_(joins),
      ranks_per_group_(ranks_per_group > 0 ? ranks_per_group : size()),
      first_of_group_(rank() / ranks_per_group_ * ranks_per_group_) {
  if (!this->inner().waited_s()) counts_->forgo_waits();
}

Event CountedCommunicator::call(Collective collective, std::uint64_t number, std::int64_t bytes) {
  return {.kind = Event::Kind::call,
          .name = row(collective).collective,
          .owner = joins_,
          .sequence = number,
          .bytes = bytes};
}

Pending CountedCommunicator::start_reduce_scatter(const float* full, float* shard, const Partition& partition,
                                                  Fold fold) {
  CollectiveCount& mine = row(Collective::reduce_scatter);
  const std::uint64_t number = ++started_;
  const Stopwatch watch(mine, inner(), call(Collective::reduce_scatter, number, bytes_of(partition, sizeof(float))));
  Pending pending = inner().start_reduce_scatter(full, shard, partition, fold);
  pending.number = number;
  if (rank() >= fold.num_ranks(size())) {
    ++mine.calls;
    return pending;
  }
  const std::int64_t of_group = partition.begin(first_of_group_ + ranks_per_group_) - partition.begin(first_of_group_);
  count(mine, partition.extent() - partition.size(rank()), partition.extent() - of_group, sizeof(float));
  return pending;
}

Pending CountedCommunicator::start_all_gather(const void* shard, void* full, const Partition& partition,
                                              std::size_t element_size) {
  CollectiveCount& mine = row(Collective::all_gather);
  const std::uint64_t number = ++started_;
  const Stopwatch watch(mine, inner(), call(Collective::all_gather, number, bytes_of(partition, element_size)));
  Pending pending = inner().start_all_gather(shard, full, partition, element_size);
  pending.number = number;
  const std::int64_t own = partition.size(rank());
  count(mine, own * (size() - 1), own * (size() - ranks_per_group_), element_size);
  return pending;
}

void CountedCommunicator::wait(Pending pending) {
  const Stopwatch watch(row(pending.collective), inner(), call(pending.collective, pending.number));
  inner().wait(pending);
}

void CountedCommunicator::wait_until_reusable(Pending pending) {
  const Stopwatch watch(row(pending.collective), inner(), call(pending.collective, pending.number));
  inner().wait_until_reusable(pending);
}

std::int64_t StagedCommunicator::buffer_bytes(int size, std::int64_t staging_bytes) {
  return std::max(staging_bytes, (size + 1) * kAlignment * kLargestElement);
}

StagedCommunicator::StagedCommunicator(std::unique_ptr<Communicator> inner, MemoryLedger& ledger,
                                       std::int64_t staging_bytes)
    : CommunicatorDecorator(std::move(inner)) {
  const std::int64_t bytes = buffer_bytes(size(), staging_bytes);
  ledger.book(Memory::staging, "communication staging", bytes);
  buffer_ = decltype(buffer_)("kozero::distributed::staged", static_cast<std::size_t>(bytes));
}

std::int64_t StagedCommunicator::chunk_extent(std::size_t element_size) const {
  return distributed::chunk_extent(static_cast<std::int64_t>(buffer_.extent(0)), size() + 1,
                                   static_cast<std::int64_t>(element_size));
}

Pending StagedCommunicator::start_reduce_scatter(const float* full, float* shard, const Partition& partition,
                                                 Fold fold) {
  constexpr std::int64_t kElement = sizeof(float);
  require(partition.num_ranks() == size(), "staged reduce_scatter: a partition for another number of ranks");
  const Chunks chunks(partition, chunk_extent(sizeof(float)));
  const int owners = partition.num_owners();
  const Partition staged(chunks.extent() * owners, size(), owners);
  auto* host = reinterpret_cast<float*>(buffer_.data());
  float* sum = host + (fold.onto ? staged.extent() : staged.begin(rank()));  // with `onto`, apart from the addends
  const bool sends = rank() < fold.num_ranks(size());
  for (std::int64_t k = 0; k < chunks.count(); ++k) {
    for (int r = 0; r < size() && sends; ++r) {
      to_host(reinterpret_cast<char*>(host + staged.begin(r)), full + chunks.begin(r, k), chunks.size(r, k) * kElement);
    }
    float* const part = shard + k * chunks.extent();
    const std::int64_t bytes = chunks.size(rank(), k) * kElement;
    if (fold.onto) to_host(reinterpret_cast<char*>(sum), part, bytes);
    inner().reduce_scatter(host, sum, staged, fold);
    to_device(part, reinterpret_cast<const char*>(sum), bytes);
  }
  return {Collective::reduce_scatter};
}

Pending StagedCommunicator::start_all_gather(const void* shard, void* full, const Partition& partition,
                                             std::size_t element_size) {
  const auto element = static_cast<std::int64_t>(element_size);
  require(partition.num_ranks() == size(), "staged all_gather: a partition for another number of ranks");
  const Chunks chunks(partition, chunk_extent(element_size));
  const int owners = partition.num_owners();
  const Partition staged(chunks.extent() * owners, size(), owners);
  char* own = buffer_.data() + staged.begin(rank()) * element;
  for (std::int64_t k = 0; k < chunks.count(); ++k) {
    to_host(own, static_cast<const char*>(shard) + k * chunks.extent() * element, chunks.size(rank(), k) * element);
    inner().all_gather(own, buffer_.data(), staged, element_size);
    for (int r = 0; r < size(); ++r) {
      to_device(static_cast<char*>(full) + chunks.begin(r, k) * element, buffer_.data() + staged.begin(r) * element,
                chunks.size(r, k) * element);
    }
  }
  return {Collective::all_gather};
}

SimulatedLink::Clock::time_point SimulatedLink::transfer(double bytes, Clock::time_point start) {
  constexpr double kLongest = 1e6;  // more does not fit the clock, and nobody waits for it
  const double sending = gbit_ > 0.0 ? 8.0 * bytes / (1e9 * gbit_) : 0.0;
  const double seconds = std::min(kLongest, 1e-6 * latency_us_ + sending);
  free_at_ = std::max(free_at_, start) + std::chrono::round<Clock::duration>(std::chrono::duration<double>(seconds));
  return free_at_;
}

SimulatedLink::Clock::time_point ThrottledCommunicator::end_of(std::int64_t elements, std::size_t element_size) {
  Device().fence("kozero::distributed::throttled");
  const double bytes = static_cast<double>(elements) * static_cast<double>(element_size);
  return link_->transfer(bytes * (size() - 1) / size(), SimulatedLink::Clock::now());
}

Pending ThrottledCommunicator::start_reduce_scatter(const float* full, float* shard, const Partition& partition,
                                                    Fold fold) {
  const auto end = end_of(partition.extent(), sizeof(float));
  Pending pending = inner().start_reduce_scatter(full, shard, partition, fold);
  pending.earliest_end = end;
  return pending;
}

Pending ThrottledCommunicator::start_all_gather(const void* shard, void* full, const Partition& partition,
                                                std::size_t element_size) {
  const auto end = end_of(partition.extent(), element_size);
  Pending pending = inner().start_all_gather(shard, full, partition, element_size);
  pending.earliest_end = end;
  return pending;
}

void ThrottledCommunicator::wait(Pending pending) {
  inner().wait(pending);
  if (pending.earliest_end <= SimulatedLink::Clock::now()) return;
  constexpr unsigned long kSlack = 1000;  // ns by which Linux may prolong a sleep; usually 50 us
  prctl(PR_SET_TIMERSLACK, kSlack);
  std::this_thread::sleep_until(pending.earliest_end);
  prctl(PR_SET_TIMERSLACK, 0UL);  // the thread's default
}

}  // namespace kozero::distributed
