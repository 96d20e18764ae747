// SPDX-FileCopyrightText: The KoZeRO authors
// SPDX-License-Identifier: Apache-2.0
// shm_communicator.cpp: peers read arrays of share() in place; all other arrays are copied through windows.
#include <algorithm>
#include <chrono>
#include <new>
#include <optional>

#include <kozero/core/error.hpp>
#include <kozero/core/views.hpp>
#include <kozero/distributed/agreement.hpp>
#include "src/distributed/back_ends.hpp"
#include "src/distributed/chunks.hpp"
#include "src/distributed/group_communicator.hpp"
#include "src/distributed/host/shared_arrays.hpp"
#include "src/distributed/liveness/watchdog.hpp"
#include "src/distributed/nodes/node_layout.hpp"

namespace kozero::distributed {
namespace {

constexpr std::int64_t kPage = 4096;
constexpr std::int64_t kFloat = sizeof(float);

std::int64_t in_pages(std::int64_t bytes) { return (bytes + kPage - 1) / kPage * kPage; }

std::int64_t chunk_of(int size, const CommunicatorOptions& options) {
  return chunk_extent(options.chunk_bytes, size - 1, kFloat);
}

// The first pages of a window: counters for the other ranks.
struct alignas(64) Board {
  PhaseCounter published;  // phases of its buffers
  // Its Postings follow.
};

std::int64_t board_bytes(const CommunicatorOptions& options) {
  return in_pages(static_cast<std::int64_t>(sizeof(Board) + options.under_way * sizeof(Posting)));
}

// A chunk for every other rank, in whole pages.
std::int64_t buffer_bytes(int size, const CommunicatorOptions& options) {
  const std::int64_t bytes = std::max(options.chunk_bytes, (size - 1) * chunk_of(size, options) * kFloat);
  return in_pages(bytes);
}

std::int64_t window_bytes(int size, const CommunicatorOptions& options) {
  return board_bytes(options) + 2 * buffer_bytes(size, options);
}

std::string in_mib(std::int64_t bytes) { return std::to_string((bytes + (1 << 20) - 1) >> 20) + " MiB"; }

/// A collective that was started here.
struct Operation {
  Collective collective = Collective::reduce_scatter;
  const void* from = nullptr;
  void* to = nullptr;
  Partition partition{0, 1};
  std::int64_t element = sizeof(float);
  Fold fold = {};
  SharedArrays::Location location = {};  ///< of `from`; in no shared array: copied through the windows
  bool open = false;

  [[nodiscard]] bool direct() const { return location.array >= 0; }
  [[nodiscard]] const char* name() const {
    return collective == Collective::reduce_scatter ? "reduce_scatter" : "all_gather";
  }
};

class ShmCommunicator final : public GroupCommunicator {
 public:
  ShmCommunicator(const Ranks& ranks, const CommunicatorOptions& options)
      : GroupCommunicator(ranks, {.label = "shm", .timeout_s = options.timeout_s}),
        options_(options),
        buffer_bytes_(buffer_bytes(size(), options)),
        chunk_(chunk_of(size(), options)),
        arrays_(*this, options.shm_folder),
        operations_(options.under_way) {
    const std::int64_t bytes = window_bytes(size(), options);
    auto* own = static_cast<char*>(arrays_.add(bytes));
    if (own == nullptr) {
      throw Error(Failure::deck,
                  "comm.backend = shm: " + options.shm_folder + " has no room for " + in_mib(size() * bytes) +
                      " of windows: free it, or take mpi",
                  Error::Seen::by_all_ranks);
    }
    new (own) Board;
    for (std::uint64_t i = 0; i < options.under_way; ++i) new (own + sizeof(Board) + i * sizeof(Posting)) Posting;
    barrier();
  }

  [[nodiscard]] std::string name() const override { return "shm"; }

  [[nodiscard]] std::string description() const override {
    const std::int64_t bytes = arrays_.bytes() - window_bytes(size(), options_);
    if (bytes == 0) return "shm (arrays copied through windows)";
    return "shm (" + in_mib(bytes) + " of arrays per rank shared" +
           (crowded_ ? ", others copied through windows)" : ")");
  }

  [[nodiscard]] std::optional<double> waited_s() const override { return waited_s_; }

  void* share(const std::string& label, std::int64_t bytes) override {
    std::int64_t needed = 0;
    for (const std::int64_t wanted : from_all_ranks(*this, bytes)) needed += in_pages(wanted);
    const std::int64_t free = broadcast_value(*this, rank() == 0 ? options_.shm_free_bytes() : 0);
    if (needed <= free) {
      if (void* own = arrays_.add(bytes)) return own;
    }
    if (rank() == 0 && !crowded_) {
      options_.notice("comm.backend = shm copies " + label + " through windows, which is slower: sharing it needs " +
                      in_mib(needed) + " of /dev/shm, which has " + in_mib(free) + " left");
    }
    crowded_ = true;
    return nullptr;
  }

  Pending start_reduce_scatter(const float* full, float* shard, const Partition& partition, Fold fold) override {
    require(partition.num_ranks() == size(), "shm reduce_scatter: a partition for another number of ranks");
    return start({Collective::reduce_scatter, full, shard, partition, sizeof(float), fold});
  }

  Pending start_all_gather(const void* shard, void* full, const Partition& partition,
                           std::size_t element_size) override {
    require(partition.num_ranks() == size(), "shm all_gather: a partition for another number of ranks");
    return start({Collective::all_gather, shard, full, partition, static_cast<std::int64_t>(element_size)});
  }

  void wait(Pending pending) override {
    Operation& operation = operations_[pending.ticket % operations_.size()];
    require(operation.open, "shm: wait for a collective that was not started");
    const bool reduces = operation.collective == Collective::reduce_scatter;
    if (operation.direct()) {
      reduces ? add_shared(operation, pending.ticket) : copy_shared(operation, pending.ticket);
    } else {
      reduces ? reduce_in_windows(operation) : gather_in_windows(operation);
    }
    operation.open = false;
    posting(rank(), pending.ticket).read.publish(pending.ticket + 1);
  }

  void wait_until_reusable(Pending pending) override {
    if (pending.ticket + operations_.size() < next_) return;  // the posting was reused: all ranks have read it
    const Operation& operation = operations_[pending.ticket % operations_.size()];
    if (operation.direct()) await_read(operation.name(), pending.ticket);
  }

 private:
  Pending start(const Operation& operation) {
    begin(operation.name(), operation.partition.extent() * operation.element);
    Device().fence("kozero::distributed::shm::start");
    const std::uint64_t ticket = next_++;
    Operation& mine = operations_[ticket % operations_.size()];
    require(!mine.open,
            "shm: " + std::to_string(operations_.size()) + " collectives are under way, and another is started");
    if (ticket >= operations_.size()) await_read(mine.name(), ticket - operations_.size());
    mine = operation;
    mine.open = true;
    mine.location = arrays_.location_of(mine.from);
    if (mine.direct()) {
      posting(rank(), ticket).location = mine.location;
      posting(rank(), ticket).posted.publish(ticket + 1);
    }
    return {mine.collective, ticket};
  }

  void await(PhaseCounter& counter, std::uint64_t phase, const char* collective, int r) {
    if (counter.is_published(phase)) return;
    const Whereabouts::Wait waits(Role::training);
    const auto start = std::chrono::steady_clock::now();
    if (!counter.await(phase, timeout())) lose(collective, r);
    waited_s_ += std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  }

  /// The input of rank r, in place.
  const char* given(int r, const Operation& operation, std::uint64_t ticket) {
    if (r == rank()) return static_cast<const char*>(operation.from);
    await(posting(r, ticket).posted, ticket + 1, operation.name(), r);
    return arrays_.at(r, posting(r, ticket).location);
  }

  void await_read(const char* collective, std::uint64_t ticket) {
    for (int r = 0; r < size(); ++r) {
      if (r != rank()) await(posting(r, ticket).read, ticket + 1, collective, r);
    }
  }

  /// Sums this rank's shard of all addends, read in place.
  void add_shared(const Operation& operation, std::uint64_t ticket) {
    const Partition& cut = operation.partition;
    auto* sum = static_cast<float*>(operation.to);
    sources_.clear();
    if (operation.fold.onto) sources_.push_back(sum);
    for (int r = 0; r < operation.fold.num_ranks(size()); ++r) {
      sources_.push_back(reinterpret_cast<const float*>(given(r, operation, ticket)) + cut.begin(rank()));
    }
    sum_in_order(sources_.data(), std::ssize(sources_), cut.size(rank()), sum);
  }

  /// Copies every rank's shard from its array.
  void copy_shared(const Operation& operation, std::uint64_t ticket) {
    for (int step = 0; step < size(); ++step) {
      const int r = (rank() + step) % size();
      copy_bytes(static_cast<char*>(operation.to) + operation.partition.begin(r) * operation.element,
                 given(r, operation, ticket), operation.partition.size(r) * operation.element);
    }
  }

  void reduce_in_windows(const Operation& operation) {
    const Chunks chunks(operation.partition, chunk_);
    const auto* full = static_cast<const float*>(operation.from);
    const int addends = operation.fold.num_ranks(size());
    for (std::int64_t k = 0; k < chunks.count(); ++k) {
      for (int r = 0; r < size() && rank() < addends; ++r) {
        if (r != rank()) copy_bytes(addend(rank(), r), full + chunks.begin(r, k), chunks.size(r, k) * kFloat);
      }
      publish();
      float* const sum = static_cast<float*>(operation.to) + k * chunk_;
      sources_.clear();
      if (operation.fold.onto) sources_.push_back(sum);
      for (int r = 0; r < size(); ++r) {
        if (r != rank()) await_published(r, operation.name());  // by all: phase k + 2 overwrites the windows
        if (r < addends) sources_.push_back(r == rank() ? full + chunks.begin(r, k) : addend(r, rank()));
      }
      sum_in_order(sources_.data(), std::ssize(sources_), chunks.size(rank(), k), sum);
      ++phase_;
    }
  }

  void gather_in_windows(const Operation& operation) {
    const std::int64_t element = operation.element;
    const Chunks chunks(operation.partition, chunk_extent(buffer_bytes_, 1, element));
    const auto* own = static_cast<const char*>(operation.from);
    auto* all = static_cast<char*>(operation.to);
    for (std::int64_t k = 0; k < chunks.count(); ++k) {
      copy_bytes(buffer(rank()), own + k * chunks.extent() * element, chunks.size(rank(), k) * element);
      publish();
      copy_bytes(all + chunks.begin(rank(), k) * element, own + k * chunks.extent() * element,
                 chunks.size(rank(), k) * element);
      for (int step = 1; step < size(); ++step) {
        const int r = (rank() + step) % size();
        await_published(r, operation.name());
        copy_bytes(all + chunks.begin(r, k) * element, buffer(r), chunks.size(r, k) * element);
      }
      ++phase_;
    }
  }

  [[nodiscard]] char* window(int r) const { return arrays_.at(r, {0, 0}); }
  [[nodiscard]] Board& board(int r) const { return *std::launder(reinterpret_cast<Board*>(window(r))); }
  [[nodiscard]] Posting& posting(int r, std::uint64_t ticket) const {
    char* first = window(r) + sizeof(Board);
    return *std::launder(reinterpret_cast<Posting*>(first + ticket % operations_.size() * sizeof(Posting)));
  }

  [[nodiscard]] char* buffer(int r) const {
    return window(r) + board_bytes(options_) + static_cast<std::int64_t>(phase_ % 2) * buffer_bytes_;
  }

  // The addend of `from` to the shard of `to`, in the window of `from`.
  [[nodiscard]] float* addend(int from, int to) const {
    return reinterpret_cast<float*>(buffer(from)) + (to - (to > from)) * chunk_;
  }

  void publish() { board(rank()).published.publish(phase_ + 1); }

  void await_published(int r, const char* collective) { await(board(r).published, phase_ + 1, collective, r); }

  CommunicatorOptions options_;
  std::int64_t buffer_bytes_;
  std::int64_t chunk_;
  SharedArrays arrays_;  // the first arrays are the windows
  std::vector<const float*> sources_;
  std::vector<Operation> operations_;
  std::uint64_t next_ = 0;   // ticket
  std::uint64_t phase_ = 0;  // of the buffers
  double waited_s_ = 0.0;    // in await()
  bool crowded_ = false;     // an array found no room
};

}  // namespace

std::string shm_unavailable_reason(const Ranks& ranks, const CommunicatorOptions& options) {
  const int size = ranks.size();
  if (node_layout(ranks, options.ranks_per_node).ranks_per_node != size) {
    return "the " + std::to_string(size) + " ranks do not share one node";
  }
  const BlockingCall call("MPI_Bcast");
  std::int64_t free_bytes = options.shm_free_bytes();
  check_mpi(MPI_Bcast(&free_bytes, 1, MPI_INT64_T, 0, mpi_comm(ranks)), "MPI_Bcast");
  const std::int64_t needed = options.communicators * size * window_bytes(size, options);
  if (free_bytes >= needed) return {};
  return "shared memory needs " + in_mib(needed) + " and /dev/shm has " + in_mib(free_bytes) + " left";
}

void book_shm_window(int size, MemoryLedger& ledger, const CommunicatorOptions& options) {
  ledger.book(Memory::communication, "shm window", window_bytes(size, options));
}

std::unique_ptr<Communicator> make_shm_communicator(const Ranks& ranks, MemoryLedger& ledger,
                                                    const CommunicatorOptions& options) {
  auto comm = std::make_unique<ShmCommunicator>(ranks, options);
  book_shm_window(comm->size(), ledger, options);
  return comm;
}

}  // namespace kozero::distributed
