// SPDX-FileCopyrightText: The KoZeRO authors
// SPDX-License-Identifier: Apache-2.0
// ring_communicator.cpp: chunks of shards pass around a ring, several under way at once.
//   step s of n: rank r has a chunk of shard r - 1 - s (reduce_scatter) or r - s (all_gather), indices mod n
//   s = 0: send it, as it is here    0 < s < n - 1: receive, add (reduce_scatter), send    s = n - 1: receive, add
// The items of a collective are (group of kWindow chunks, step, chunk), in this order on every rank. So a rank sends
// the chunks of a group one after the other, and adds the first while the next ones travel. All collectives form one
// sequence of items: a rank posts receives up to kSlots items ahead and passes the items on in order. Receiving item i
// needs a free slot, so that the send of item i - kSlots is complete, for which the next rank has posted an item before
// i. Therefore the ring cannot lock.
#include <algorithm>
#include <array>
#include <optional>

#include <kozero/core/error.hpp>
#include <kozero/core/views.hpp>
#include "src/distributed/back_ends.hpp"
#include "src/distributed/chunks.hpp"
#include "src/distributed/group_communicator.hpp"
#include "src/distributed/nodes/chain_reduction.hpp"

namespace kozero::distributed {
namespace {

constexpr int kWindow = 4;           // chunks of a group
constexpr int kSlots = 2 * kWindow;  // of the buffer: a group is received while the group before is sent
constexpr std::int64_t kFloat = sizeof(float);
constexpr std::int64_t kLeastChunk = std::int64_t{16} << 10;  // bytes: shorter messages cost more than they overlap
constexpr std::int64_t kGatherChunk = std::int64_t{1} << 20;  // bytes

/// Bytes of the buffer of partial sums.
std::int64_t sums_bytes(const CommunicatorOptions& options) {
  return kSlots * chunk_extent(options.chunk_bytes, kWindow, kFloat) * kFloat;
}

std::int64_t chain_chunk(const CommunicatorOptions& options) { return options.chunk_bytes / ChainReductions::kWindow; }

/// The collectives under way on this rank's part of the ring.
class RingFlow {
 public:
  /// `comm` has `size` > 1 ranks. No chunk of an all_gather has more than `most_bytes` bytes.
  RingFlow(MPI_Comm comm, int rank, int size, const CommunicatorOptions& options, bool reduces)
      : comm_(comm),
        rank_(rank),
        size_(size),
        most_sums_(chunk_extent(options.chunk_bytes, kWindow, kFloat)),
        most_gathered_(std::min(kGatherChunk, options.message_bytes)),
        collectives_(options.under_way) {
    if (reduces) sums_ = Buffer("kozero::distributed::ring", static_cast<std::size_t>(kSlots * most_sums_));
  }
  ~RingFlow() {
    const auto is_under_way = [](const Message& message) { return message.request != MPI_REQUEST_NULL; };
    if (std::ranges::any_of(inputs_, is_under_way) || std::ranges::any_of(outputs_, is_under_way)) {
      keep_for_ever(std::make_shared<Buffer>(sums_));
    }
  }
  RingFlow(const RingFlow&) = delete;
  RingFlow& operator=(const RingFlow&) = delete;

  std::uint64_t start_reduce_scatter(const float* full, float* shard, const Partition& partition) {
    // Only receives of an all_gather write to `full`.
    auto* const bytes = const_cast<char*>(reinterpret_cast<const char*>(full));
    return start(
        {.full = bytes, .shard = shard, .adds = true, .element = kFloat, .chunks = {partition, chunk_of(partition)}});
  }
  /// This rank's shard is in `full`.
  std::uint64_t start_all_gather(char* full, const Partition& partition, std::int64_t element) {
    return start({.full = full, .element = element, .chunks = {partition, chunk_extent(most_gathered_, 1, element)}});
  }

  /// Makes progress without waiting. Returns whether any was made.
  bool advance() {
    bool moved = false;
    for (bool again = true; again; moved = moved || again) {
      again = post_receive();
      again = pass_on() || again;
    }
    return moved;
  }

  /// Whether this rank has its result and has sent all that the next rank needs.
  [[nodiscard]] bool is_done(std::uint64_t ticket) {
    if (find_item(passed_) && passed_.ticket <= ticket) return false;
    return std::ranges::all_of(outputs_, [&](Message& output) { return output.ticket > ticket || arrived(output); });
  }
  /// The rank that this rank waits for.
  [[nodiscard]] int awaited(std::uint64_t ticket) {
    const bool waits_for_input = find_item(passed_) && passed_.ticket <= ticket && !arrived(inputs_[passed_.slot()]);
    return waits_for_input ? previous() : next_rank();
  }
  [[nodiscard]] bool is_open(std::uint64_t ticket) const {
    return ticket < next_ && ticket + collectives_.size() >= next_ && at(ticket).is_open;
  }
  void close(std::uint64_t ticket) { at(ticket).is_open = false; }

 private:
  using Buffer = Kokkos::View<float*, Kokkos::HostSpace>;

  struct Started {
    char* full = nullptr;
    float* shard = nullptr;  ///< of a reduce_scatter
    bool adds = false;       ///< a reduce_scatter
    std::int64_t element = 1;
    Chunks chunks{Partition(0, 1), 1};
    bool is_open = false;
  };
  /// Item `item` of collective `ticket`; `sequence` counts the items of all collectives.
  struct Cursor {
    std::uint64_t ticket = 0;
    std::int64_t item = 0;
    std::uint64_t sequence = 0;

    void pass() { ++item, ++sequence; }
    [[nodiscard]] std::size_t slot() const { return sequence % kSlots; }
  };
  struct Message {
    MPI_Request request = MPI_REQUEST_NULL;
    std::uint64_t ticket = 0;
  };
  /// A chunk at one step: elements [begin, begin + extent) of the full array.
  struct Item {
    int step;
    std::int64_t chunk, begin, extent;
  };

  [[nodiscard]] int next_rank() const { return (rank_ + 1) % size_; }
  [[nodiscard]] int previous() const { return (rank_ + size_ - 1) % size_; }
  [[nodiscard]] Started& at(std::uint64_t ticket) { return collectives_[ticket % collectives_.size()]; }
  [[nodiscard]] const Started& at(std::uint64_t ticket) const { return collectives_[ticket % collectives_.size()]; }
  [[nodiscard]] float* sum(std::size_t slot) { return sums_.data() + static_cast<std::int64_t>(slot) * most_sums_; }

  /// A small shard is cut into kWindow chunks too.
  [[nodiscard]] std::int64_t chunk_of(const Partition& partition) const {
    const std::int64_t bytes = std::max(partition.largest() * kFloat / kWindow, kLeastChunk) + kAlignment * kFloat - 1;
    return std::min(chunk_extent(bytes, 1, kFloat), most_sums_);
  }

  std::uint64_t start(const Started& collective) {
    require(!at(next_).is_open,
            "ring: " + std::to_string(collectives_.size()) + " collectives are under way, and another is started");
    at(next_) = collective;
    at(next_).is_open = true;
    ++next_;
    advance();
    return next_ - 1;
  }

  /// Moves the cursor to its next item, past completed collectives. Returns whether an item is left.
  bool find_item(Cursor& cursor) const {
    for (; cursor.ticket < next_; ++cursor.ticket, cursor.item = 0) {
      if (cursor.item < at(cursor.ticket).chunks.count() * size_) return true;
    }
    return false;
  }

  [[nodiscard]] Item item_at(const Cursor& cursor) const {
    const Started& collective = at(cursor.ticket);
    const std::int64_t first = cursor.item / (size_ * kWindow) * kWindow;  // chunk of the group
    const std::int64_t width = std::min<std::int64_t>(collective.chunks.count() - first, kWindow);
    const std::int64_t of_group = cursor.item - first * size_;
    const auto step = static_cast<int>(of_group / width);
    const std::int64_t chunk = first + of_group % width;
    const int owner = (rank_ - step - (collective.adds ? 1 : 0) + 2 * size_) % size_;
    return {step, chunk, collective.chunks.begin(owner, chunk), collective.chunks.size(owner, chunk)};
  }

  [[nodiscard]] static bool arrived(Message& message) {
    int done = 1;
    if (message.request != MPI_REQUEST_NULL)
      check_mpi(MPI_Test(&message.request, &done, MPI_STATUS_IGNORE), "MPI_Test");
    return done != 0;
  }

  bool post_receive() {
    if (!find_item(posted_) || posted_.sequence >= passed_.sequence + kSlots) return false;
    const std::size_t slot = posted_.slot();
    if (!arrived(outputs_[slot])) return false;
    const Started& collective = at(posted_.ticket);
    const Item item = item_at(posted_);
    if (item.step > 0 && item.extent > 0) {
      char* const to =
          collective.adds ? reinterpret_cast<char*>(sum(slot)) : collective.full + item.begin * collective.element;
      check_mpi(MPI_Irecv(to, static_cast<int>(item.extent * collective.element), MPI_BYTE, previous(), 0, comm_,
                          &inputs_[slot].request),
                "MPI_Irecv");
    }
    posted_.pass();
    return true;
  }

  /// Adds this rank's addend to the next item and sends it on.
  bool pass_on() {
    if (!find_item(passed_) || passed_.sequence >= posted_.sequence) return false;
    const std::size_t slot = passed_.slot();
    if (!arrived(inputs_[slot])) return false;
    const Started& collective = at(passed_.ticket);
    const Item item = item_at(passed_);
    const bool ends = item.step == size_ - 1;
    char* const here = collective.full + item.begin * collective.element;
    const bool adds = collective.adds && item.step > 0;
    if (adds && item.extent > 0) {
      const std::array<const float*, 2> sources = {sum(slot), reinterpret_cast<const float*>(here)};
      float* const to = ends ? collective.shard + item.chunk * collective.chunks.extent() : sum(slot);
      sum_in_order(sources.data(), std::ssize(sources), item.extent, to);
    }
    outputs_[slot].ticket = passed_.ticket;
    if (!ends && item.extent > 0) {
      check_mpi(MPI_Isend(adds ? reinterpret_cast<const char*>(sum(slot)) : here,
                          static_cast<int>(item.extent * collective.element), MPI_BYTE, next_rank(), 0, comm_,
                          &outputs_[slot].request),
                "MPI_Isend");
    }
    passed_.pass();
    return true;
  }

  MPI_Comm comm_;
  int rank_;
  int size_;
  std::int64_t most_sums_;      ///< elements of a slot
  std::int64_t most_gathered_;  ///< bytes
  Buffer sums_;
  std::vector<Started> collectives_;
  std::uint64_t next_ = 0;
  Cursor posted_;
  Cursor passed_;
  std::array<Message, kSlots> inputs_;
  std::array<Message, kSlots> outputs_;
};

class RingCommunicator final : public GroupCommunicator {
 public:
  RingCommunicator(const Ranks& ranks, const CommunicatorOptions& options)
      : GroupCommunicator(ranks, {.label = "ring", .timeout_s = options.timeout_s}),
        is_exact_(options.exact),
        flow_(mpi(), rank(), size(), options, !options.exact) {
    if (!is_exact_) return;
    board_ = std::make_unique<NodeBoard>(make_self_communicator(), options.shm_folder, options.under_way);
    chain_.emplace(mpi(), rank(), NodeLayout{size(), 1}, *board_, options.under_way, chain_chunk(options));
  }

  [[nodiscard]] std::string name() const override { return "ring"; }
  [[nodiscard]] std::string description() const override { return is_exact_ ? "ring (sums in rank order)" : "ring"; }
  [[nodiscard]] bool adds_in_order() const override { return is_exact_; }

  Pending start_reduce_scatter(const float* full, float* shard, const Partition& partition, Fold fold) override {
    require(partition.num_ranks() == size(), "ring reduce_scatter: a partition for another number of ranks");
    require(is_exact_ || (fold.num_ranks(size()) == size() && !fold.onto),
            "ring reduce_scatter adds all ranks' arrays alone, unless comm.exact");
    begin("reduce_scatter", partition.extent() * kFloat);
    Device().fence("kozero::distributed::ring::reduce_scatter");
    if (!is_exact_) {
      if (size() == 1) copy_bytes(shard, full, partition.extent() * kFloat);
      return {Collective::reduce_scatter, flow_.start_reduce_scatter(full, shard, partition)};
    }
    const std::uint64_t ticket = chain_->next();
    chain_->start(full, shard, partition, fold, {});
    return {Collective::reduce_scatter, ticket};
  }

  Pending start_all_gather(const void* shard, void* full, const Partition& partition,
                           std::size_t element_size) override {
    require(partition.num_ranks() == size(), "ring all_gather: a partition for another number of ranks");
    const auto element = static_cast<std::int64_t>(element_size);
    begin("all_gather", partition.extent() * element);
    Device().fence("kozero::distributed::ring::all_gather");
    auto* all = static_cast<char*>(full);
    copy_bytes(all + partition.begin(rank()) * element, shard, partition.size(rank()) * element);
    return {Collective::all_gather, flow_.start_all_gather(all, partition, element)};
  }

  void wait(Pending pending) override {
    const bool gathers = pending.collective == Collective::all_gather;
    if (gathers || !is_exact_) return wait_in(flow_, pending.ticket, gathers ? "all_gather" : "reduce_scatter");
    wait_in(*chain_, pending.ticket, "reduce_scatter");
  }

 private:
  template <class Flow>
  void wait_in(Flow& flow, std::uint64_t ticket, const char* collective) {
    require(flow.is_open(ticket), "ring: wait for a collective that was not started");
    const auto advance = [&] {
      const bool moved = flow_.advance();
      return (chain_ && chain_->advance()) || moved;
    };
    advance_until(
        advance, [&] { return flow.is_done(ticket); }, [&] { return flow.awaited(ticket); }, collective);
    flow.close(ticket);
  }

  bool is_exact_;
  RingFlow flow_;
  std::unique_ptr<NodeBoard> board_;
  std::optional<ChainReductions> chain_;  ///< reductions of comm.exact
};

}  // namespace

void book_ring_buffers(MemoryLedger& ledger, const CommunicatorOptions& options) {
  ledger.book(Memory::communication, "partial sums on the ring",
              options.exact ? ChainReductions::buffer_bytes(chain_chunk(options)) : sums_bytes(options));
}

std::unique_ptr<Communicator> make_ring_communicator(const Ranks& ranks, MemoryLedger& ledger,
                                                     const CommunicatorOptions& options) {
  auto comm = std::make_unique<RingCommunicator>(ranks, options);
  book_ring_buffers(ledger, options);
  return comm;
}

}  // namespace kozero::distributed
