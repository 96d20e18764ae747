// SPDX-FileCopyrightText: The KoZeRO authors
// SPDX-License-Identifier: Apache-2.0
// communicator_decorators.hpp: communicators that wrap another communicator: checked, counted, staged, throttled.
//   checked   ranks compare collective, fold, count and element size before each collective
//   counted   counts calls, bytes and seconds of each collective
//   staged    moves device memory through a pinned host buffer, for communicators that read only host memory
//   throttled delays the end of each collective as a slower network would
#pragma once
#include <array>
#include <chrono>
#include <cstdint>
#include <Kokkos_Core.hpp>
#include <memory>
#include <optional>
#include <utility>

#include <kozero/core/events.hpp>
#include <kozero/core/ledger.hpp>
#include <kozero/distributed/communicator.hpp>

namespace kozero::distributed {

/// A communicator that forwards every call to the communicator that it owns; decorators override some calls.
class CommunicatorDecorator : public Communicator {
 public:
  explicit CommunicatorDecorator(std::unique_ptr<Communicator> inner) : inner_(std::move(inner)) {}

  [[nodiscard]] int rank() const override { return inner_->rank(); }
  [[nodiscard]] int size() const override { return inner_->size(); }
  [[nodiscard]] std::string name() const override { return inner_->name(); }

  [[nodiscard]] std::string description() const override { return inner_->description(); }

  [[nodiscard]] bool adds_in_order() const override { return inner_->adds_in_order(); }
  [[nodiscard]] std::optional<double> waited_s() const override { return inner_->waited_s(); }

  Pending start_reduce_scatter(const float* full, float* shard, const Partition& partition, Fold fold) override {
    return inner_->start_reduce_scatter(full, shard, partition, fold);
  }
  Pending start_all_gather(const void* shard, void* full, const Partition& partition,
                           std::size_t element_size) override {
    return inner_->start_all_gather(shard, full, partition, element_size);
  }
  void wait(Pending pending) override { inner_->wait(pending); }
  void wait_until_reusable(Pending pending) override { inner_->wait_until_reusable(pending); }
  void* share(const std::string& label, std::int64_t bytes) override { return inner_->share(label, bytes); }
  [[nodiscard]] bool shares_gathered() const override { return inner_->shares_gathered(); }

  void barrier() override { inner_->barrier(); }
  std::vector<std::byte> gather_control(std::span<const std::byte> mine) override {
    return inner_->gather_control(mine);
  }
  std::vector<std::uint64_t> sum_control(std::span<const std::uint64_t> mine) override {
    return inner_->sum_control(mine);
  }
  std::string broadcast_control(const std::string& bytes) override { return inner_->broadcast_control(bytes); }

 protected:
  [[nodiscard]] Communicator& inner() const { return *inner_; }

 private:
  std::unique_ptr<Communicator> inner_;
};

/// Before each collective the ranks compare their calls: collective, fold, count, element size.
/// If two ranks differ, every rank throws Error(internal, seen by all ranks) naming both ranks and their calls. Without
/// the check a rank would wait in vain or receive another collective's bytes. By default, debug builds wrap every
/// communicator of several ranks in it.
class CheckedCommunicator final : public CommunicatorDecorator {
 public:
  /// `checks`: a communicator for control traffic between the same ranks, used by the checks alone.
  CheckedCommunicator(std::unique_ptr<Communicator> inner, std::unique_ptr<Communicator> checks)
      : CommunicatorDecorator(std::move(inner)), checks_(std::move(checks)) {}

  Pending start_reduce_scatter(const float* full, float* shard, const Partition& partition, Fold fold) override;
  Pending start_all_gather(const void* shard, void* full, const Partition& partition,
                           std::size_t element_size) override;
  void* share(const std::string& label, std::int64_t bytes) override;
  void barrier() override;
  std::vector<std::byte> gather_control(std::span<const std::byte> mine) override;
  std::vector<std::uint64_t> sum_control(std::span<const std::uint64_t> mine) override;
  std::string broadcast_control(const std::string& bytes) override;

 private:
  enum class Call {
    reduce_scatter,
    reduce_scatter_onto,
    all_gather,
    share,
    barrier,
    gather_control,
    sum_control,
    broadcast_control
  };

  /// `ranks`: the number of ranks in the Fold.
  void check(Call call, std::int64_t count, std::size_t element_size, int ranks = 0);

  std::unique_ptr<Communicator> checks_;
};

/// The calls of a collective, the bytes that this rank sent, and the seconds in its starts and waits.
struct CollectiveCount {
  const char* collective;
  std::int64_t calls = 0;
  std::int64_t bytes = 0;
  std::int64_t bytes_across = 0;  ///< part of `bytes` sent to other groups
  double seconds = 0.0;
  std::optional<double> waited = {};  ///< part of `seconds`: Communicator::waited_s()
};

/// What one or more counted communicators have counted since the start or the last reset.
class CollectiveCounts {
 public:
  CollectiveCounts() { reset(); }

  /// One row per collective.
  [[nodiscard]] const std::array<CollectiveCount, 2>& rows() const { return rows_; }
  CollectiveCount& row(Collective collective) { return rows_[static_cast<std::size_t>(collective)]; }
  void reset();
  /// From now on `waited` is nullopt: a communicator cannot measure its waits.
  void forgo_waits();

 private:
  std::array<CollectiveCount, 2> rows_{{{"reduce_scatter"}, {"all_gather"}}};
  bool has_waits_ = true;
};

/// Counts each collective.
///   reduce_scatter   (S - own shard) bytes        all_gather   (n - 1) * own shard        S: the full array, n ranks
/// Summed over the ranks each call is (n - 1) * S for any partition; a rank that a Fold leaves out sends nothing.
/// Control traffic is not counted.
class CountedCommunicator final : public CommunicatorDecorator {
 public:
  /// Groups are `ranks_per_group` consecutive ranks; 0: all ranks are one group. Adds to `counts`. `joins`, a string
  /// literal, names the communicator's ranks in events.
  explicit CountedCommunicator(std::unique_ptr<Communicator> inner, int ranks_per_group = 0,
                               std::shared_ptr<CollectiveCounts> counts = std::make_shared<CollectiveCounts>(),
                               const char* joins = "all ranks");

  Pending start_reduce_scatter(const float* full, float* shard, const Partition& partition, Fold fold) override;
  Pending start_all_gather(const void* shard, void* full, const Partition& partition,
                           std::size_t element_size) override;
  void wait(Pending pending) override;
  void wait_until_reusable(Pending pending) override;

  [[nodiscard]] CollectiveCounts& counts() const { return *counts_; }

 private:
  CollectiveCount& row(Collective collective) { return counts_->row(collective); }
  /// The event of a call for the collective with that number.
  [[nodiscard]] Event call(Collective collective, std::uint64_t number, std::int64_t bytes = 0);

  std::shared_ptr<CollectiveCounts> counts_;
  const char* joins_;
  std::uint64_t started_ = 0;  // collectives
  int ranks_per_group_;
  int first_of_group_;
};

/// Collectives on device memory through a communicator that reads only host memory.
///   device -> one pinned host buffer -> the inner collective, in place -> device, chunk by chunk of all shards
/// The inner communicator computes the sums, so the bits are the same. There is one buffer, so start completes the
/// whole collective. The buffer is booked under Memory::staging.
class StagedCommunicator final : public CommunicatorDecorator {
 public:
  /// `staging_bytes`: the buffer's size, raised to at least size() + 1 chunks of 64 elements of 8 bytes.
  StagedCommunicator(std::unique_ptr<Communicator> inner, MemoryLedger& ledger, std::int64_t staging_bytes);

  Pending start_reduce_scatter(const float* full, float* shard, const Partition& partition, Fold fold) override;
  Pending start_all_gather(const void* shard, void* full, const Partition& partition,
                           std::size_t element_size) override;
  void wait(Pending /*pending*/) override {}
  void wait_until_reusable(Pending /*pending*/) override {}
  /// nullptr: host memory cannot hold a device's arrays.
  void* share(const std::string& /*label*/, std::int64_t /*bytes*/) override { return nullptr; }
  [[nodiscard]] bool shares_gathered() const override { return false; }

  /// Bytes that one of `size` ranks books.
  static std::int64_t buffer_bytes(int size, std::int64_t staging_bytes);

 private:
  [[nodiscard]] std::int64_t chunk_extent(std::size_t element_size) const;

  Kokkos::View<char*, Kokkos::SharedHostPinnedSpace> buffer_;
};

/// A rank's simulated network link: transfers follow one another.
///   end = max(start, end of the transfer before) + latency + 8 bytes / rate
class SimulatedLink {
 public:
  using Clock = std::chrono::steady_clock;

  /// `gbit`: 10^9 bits per second; 0: any number of bytes takes no time.
  SimulatedLink(double gbit, double latency_us) : gbit_(gbit), latency_us_(latency_us) {}

  /// When a transfer of `bytes` bytes ends that starts at `start`, not before the `start` of the call before.
  Clock::time_point transfer(double bytes, Clock::time_point start);

 private:
  double gbit_;
  double latency_us_;
  Clock::time_point free_at_ = {};
};

/// Delays the end of each collective until a simulated link has sent its bytes. Results do not change.
///   start:  begins the inner collective and the transfer of S (n-1)/n bytes      S: the full array, n ranks
///   wait:   waits for the inner collective, then sleeps until the transfer has ended
/// Every rank counts the bytes of its bus bandwidth (nccl-tests), whatever its shard or a Fold. So computing between
/// start and wait hides the delay. On GPUs start waits for the kernels before it. Control traffic is not delayed.
class ThrottledCommunicator final : public CommunicatorDecorator {
 public:
  /// `link`: shared by all communicators of this rank.
  ThrottledCommunicator(std::unique_ptr<Communicator> inner, std::shared_ptr<SimulatedLink> link)
      : CommunicatorDecorator(std::move(inner)), link_(std::move(link)) {}

  Pending start_reduce_scatter(const float* full, float* shard, const Partition& partition, Fold fold) override;
  Pending start_all_gather(const void* shard, void* full, const Partition& partition,
                           std::size_t element_size) override;
  void wait(Pending pending) override;

 private:
  /// When the transfer for a collective on `elements` elements ends that starts now.
  [[nodiscard]] SimulatedLink::Clock::time_point end_of(std::int64_t elements, std::size_t element_size);

  std::shared_ptr<SimulatedLink> link_;
};

}  // namespace kozero::distributed
