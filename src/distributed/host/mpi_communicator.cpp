// SPDX-FileCopyrightText: The KoZeRO authors
// SPDX-License-Identifier: Apache-2.0
// mpi_communicator.cpp: exchanges chunks of shards by nonblocking messages and adds them in rank order.
#include <array>
#include <Kokkos_Core.hpp>

#include <kozero/core/error.hpp>
#include <kozero/core/views.hpp>
#include "src/distributed/back_ends.hpp"
#include "src/distributed/chunks.hpp"
#include "src/distributed/group_communicator.hpp"

namespace kozero::distributed {
namespace {

std::int64_t chunk_of(int size, const CommunicatorOptions& options) {
  return chunk_extent(options.chunk_bytes, size - 1, sizeof(float));
}

std::int64_t buffer_extent(int size, const CommunicatorOptions& options) {
  return (size - 1) * chunk_of(size, options);
}

class MpiCommunicator final : public GroupCommunicator {
 public:
  MpiCommunicator(const Ranks& ranks, const CommunicatorOptions& options)
      : GroupCommunicator(ranks, {.label = "mpi", .timeout_s = options.timeout_s}),
        chunk_(chunk_of(size(), options)),
        message_bytes_(options.message_bytes),
        pending_{PendingMessages(2 * size()), PendingMessages(2 * size())},
        gathers_(options.under_way, PendingMessages(0)) {  // resized when used
    const auto extent = static_cast<std::size_t>(buffer_extent(size(), options));
    for (auto& buffer : received_) buffer = Buffer("kozero::distributed::mpi", extent);
  }

  ~MpiCommunicator() override {
    for (std::size_t i = 0; i < received_.size(); ++i) {
      if (pending_[i].are_under_way()) keep_for_ever(std::make_shared<Buffer>(received_[i]));
    }
  }

  [[nodiscard]] std::string name() const override { return "mpi"; }

  Pending start_reduce_scatter(const float* full, float* shard, const Partition& partition, Fold fold) override {
    require(partition.num_ranks() == size(), "mpi reduce_scatter: a partition for another number of ranks");
    begin("reduce_scatter", partition.extent() * static_cast<std::int64_t>(sizeof(float)));
    Device().fence("kozero::distributed::mpi::reduce_scatter");
    const Chunks chunks(partition, chunk_);
    const int addends = fold.num_ranks(size());
    if (chunks.count() > 0) exchange(full, chunks, 0, addends);
    for (std::int64_t k = 0; k < chunks.count(); ++k) {
      if (k + 1 < chunks.count()) exchange(full, chunks, k + 1, addends);
      wait_for(pending_[k % 2], "reduce_scatter");
      sources_.clear();
      if (fold.onto) sources_.push_back(shard + k * chunk_);
      for (int r = 0; r < addends; ++r) {
        sources_.push_back(r == rank() ? full + chunks.begin(rank(), k) : received(k, r));
      }
      sum_in_order(sources_.data(), std::ssize(sources_), chunks.size(rank(), k), shard + k * chunk_);
    }
    return {Collective::reduce_scatter};
  }

  Pending start_all_gather(const void* shard, void* full, const Partition& partition,
                           std::size_t element_size) override {
    require(partition.num_ranks() == size(), "mpi all_gather: a partition for another number of ranks");
    const auto element = static_cast<std::int64_t>(element_size);
    begin("all_gather", partition.extent() * element);
    Device().fence("kozero::distributed::mpi::all_gather");
    auto* all = static_cast<char*>(full);
    copy_bytes(all + partition.begin(rank()) * element, shard, partition.size(rank()) * element);
    const std::uint64_t ticket = next_gather_++;
    PendingMessages& pending = gathers_[ticket % gathers_.size()];
    require(pending.count() == 0,
            "mpi: " + std::to_string(gathers_.size()) + " gathers are under way, and another is started");
    exchange_shards(all, partition, element, message_bytes_, 1, pending);
    return {Collective::all_gather, ticket};
  }

  void wait(Pending pending) override {
    if (pending.collective == Collective::all_gather) {
      wait_for(gathers_[pending.ticket % gathers_.size()], "all_gather");
    }
  }

 private:
  using Buffer = Kokkos::View<float*, Kokkos::HostSpace>;

  // In each step every rank sends to one rank and receives from one, so that no rank is the first target of all others.
  [[nodiscard]] int downstream(int step) const { return (rank() + step) % size(); }
  [[nodiscard]] int upstream(int step) const { return (rank() - step + size()) % size(); }

  float* received(std::int64_t k, int peer) { return received_[k % 2].data() + (peer - (peer > rank())) * chunk_; }

  /// The first `addends` ranks send; all ranks receive. Sends come first, as in exchange_shards().
  void exchange(const float* full, const Chunks& chunks, std::int64_t k, int addends) {
    constexpr std::int64_t kElement = sizeof(float);
    for (int step = 1; step < size() && rank() < addends; ++step) {
      const int to = downstream(step);
      send(full + chunks.begin(to, k), chunks.size(to, k) * kElement, to, pending_[k % 2]);
    }
    for (int step = 1; step < size(); ++step) {
      const int from = upstream(step);
      if (from < addends) receive(received(k, from), chunks.size(rank(), k) * kElement, from, pending_[k % 2]);
    }
  }

  std::int64_t chunk_;
  std::int64_t message_bytes_;
  std::array<Buffer, 2> received_;
  std::vector<const float*> sources_;
  std::array<PendingMessages, 2> pending_;
  std::vector<PendingMessages> gathers_;
  std::uint64_t next_gather_ = 0;
};

}  // namespace

void book_mpi_buffers(int size, MemoryLedger& ledger, const CommunicatorOptions& options) {
  const auto bytes = static_cast<std::int64_t>(sizeof(float)) * buffer_extent(size, options);
  ledger.book(Memory::communication, "mpi receive buffers", 2 * bytes);
}

std::unique_ptr<Communicator> make_mpi_communicator(const Ranks& ranks, MemoryLedger& ledger,
                                                    const CommunicatorOptions& options) {
  auto comm = std::make_unique<MpiCommunicator>(ranks, options);
  book_mpi_buffers(comm->size(), ledger, options);
  return comm;
}

}  // namespace kozero::distributed
