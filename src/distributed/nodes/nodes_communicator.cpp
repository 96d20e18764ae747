// SPDX-FileCopyrightText: The KoZeRO authors
// SPDX-License-Identifier: Apache-2.0
// nodes_communicator.cpp: `mpi` on several nodes: sums by a chain over the nodes, one copy of a shard to each node.
#include <algorithm>
#include <utility>

#include <kozero/core/error.hpp>
#include <kozero/core/views.hpp>
#include <kozero/distributed/agreement.hpp>
#include <kozero/distributed/environment.hpp>
#include <kozero/distributed/make_communicator.hpp>
#include "src/distributed/back_ends.hpp"
#include "src/distributed/group_communicator.hpp"
#include "src/distributed/nodes/chain_reduction.hpp"
#include "src/distributed/nodes/node_board.hpp"

namespace kozero::distributed {

namespace {

constexpr std::uint64_t kDone = ~std::uint64_t{0};  // ticket of a collective that completed in its start

std::unique_ptr<Communicator> control_of_node(const Ranks& all, const NodeLayout& layout, double timeout_s) {
  const RanksOfColor node(all, layout.node(all.rank()));
  return make_control_communicator(node.ranks(), timeout_s, {.checks_calls = false});
}

std::int64_t chain_chunk(const CommunicatorOptions& options) { return chain_chunk_limit(options.chunk_bytes); }

/// An all-gather that was started.
struct Gather {
  Partition partition{0, 1};
  std::int64_t element = 1;
  char* full = nullptr;
  bool is_open = false;
  PendingMessages messages{0};

  [[nodiscard]] bool overlaps(const char* begin, std::int64_t bytes) const {
    return begin < full + partition.extent() * element && full < begin + bytes;
  }
};

class NodesCommunicator final : public GroupCommunicator {
 public:
  NodesCommunicator(const Ranks& ranks, const NodeLayout& layout, std::unique_ptr<Communicator> pairwise,
                    std::unique_ptr<NodeBoard> board, const CommunicatorOptions& options)
      : GroupCommunicator(ranks, {.label = "mpi", .timeout_s = options.timeout_s}),
        options_(options),
        layout_(layout),
        pairwise_(std::move(pairwise)),
        board_(std::move(board)),
        chains_(mpi(), rank(), layout, *board_, options.under_way, chain_chunk(options)),
        gathers_(options.under_way) {}

  [[nodiscard]] std::string name() const override { return "mpi"; }

  [[nodiscard]] std::string description() const override {
    return "mpi (" + std::to_string(layout_.num_nodes) + " nodes of " + std::to_string(layout_.ranks_per_node) +
           (layout_.ranks_per_node == 1 ? " rank" : " ranks") +
           (lacks_room_ ? ", arrays without room in /dev/shm go pairwise)" : ")");
  }

  [[nodiscard]] bool shares_gathered() const override { return layout_.ranks_per_node > 1; }

  void* share(const std::string& label, std::int64_t bytes) override {
    if (layout_.ranks_per_node == 1) return nullptr;  // no peer reads it
    const std::int64_t free = options_.shm_free_bytes();
    std::int64_t needed = 0;
    for (const std::int64_t wanted : from_all_ranks(board_->node(), bytes)) needed += wanted;
    void* own = nullptr;
    if (broadcast_value(board_->node(), char{needed <= free}) != 0) own = board_->arrays().add(bytes);
    if (on_all_ranks(*this, own != nullptr)) return own;
    if (own != nullptr) board_->arrays().remove_last();
    if (rank() == 0 && !lacks_room_) {
      options_.notice("comm.backend = mpi exchanges " + label +
                      " pairwise between all ranks, which is slower: a node's /dev/shm has no room to share it");
    }
    lacks_room_ = true;
    return nullptr;
  }

  Pending start_reduce_scatter(const float* full, float* shard, const Partition& partition, Fold fold) override {
    require(partition.num_ranks() == size(), "mpi reduce_scatter: a partition for another number of ranks");
    const std::int64_t bytes = partition.extent() * static_cast<std::int64_t>(sizeof(float));
    const auto location = board_->arrays().location_of(full);
    if (!is_shared(location) || !takes_chain(partition)) {
      pairwise_->reduce_scatter(full, shard, partition, fold);
      return {Collective::reduce_scatter, kDone};
    }
    begin("reduce_scatter", bytes);
    Device().fence("kozero::distributed::nodes::reduce_scatter");
    const std::uint64_t ticket = chains_.next();
    if (ticket >= options_.under_way) wait_until_read(Collective::reduce_scatter, ticket - options_.under_way);
    chains_.start(full, shard, partition, fold, location);
    return {Collective::reduce_scatter, ticket};
  }

  Pending start_all_gather(const void* shard, void* full, const Partition& partition,
                           std::size_t element_size) override {
    require(partition.num_ranks() == size(), "mpi all_gather: a partition for another number of ranks");
    const auto element = static_cast<std::int64_t>(element_size);
    const auto location = board_->arrays().location_of(full);
    if (!is_shared(location)) {
      pairwise_->all_gather(shard, full, partition, element_size);
      return {Collective::all_gather, kDone};
    }
    begin("all_gather", partition.extent() * element);
    Device().fence("kozero::distributed::nodes::all_gather");
    auto* all = static_cast<char*>(full);
    Gather& gather = gathers_[next_gather_ % gathers_.size()];
    require(!gather.is_open,
            "mpi: " + std::to_string(gathers_.size()) + " gathers are under way, and another is started");
    const std::uint64_t ticket = next_gather_++;
    wait_for_readers_of(all, partition.extent() * element, ticket);
    gather.partition = partition;
    gather.element = element;
    gather.full = all;
    gather.is_open = true;
    copy_bytes(all + partition.begin(rank()) * element, shard, partition.size(rank()) * element);
    exchange_shards(all, partition, element, options_.message_bytes, layout_.ranks_per_node, gather.messages);
    return {Collective::all_gather, ticket};
  }

  void wait(Pending pending) override {
    if (pending.ticket == kDone) return;
    if (pending.collective == Collective::all_gather) return wait_for_gather(pending.ticket);
    require(chains_.is_open(pending.ticket), "mpi: wait for a reduction that was not started");
    wait_until([&] { return chains_.is_done(pending.ticket); }, [&] { return chains_.awaited(pending.ticket); },
               "reduce_scatter");
    chains_.close(pending.ticket);
  }

  void wait_until_reusable(Pending pending) override {
    if (pending.ticket == kDone) return;
    const bool gathers = pending.collective == Collective::all_gather;
    if (pending.ticket + options_.under_way < (gathers ? next_gather_ : chains_.next())) return;  // all have read it
    wait_until_read(pending.collective, pending.ticket);
  }

 private:
  [[nodiscard]] bool is_shared(const SharedArrays::Location& location) const {
    return layout_.ranks_per_node == 1 || location.array >= 0;
  }

  [[nodiscard]] bool takes_chain(const Partition& partition) const {
    if (options_.ranks_per_node > 0) return true;
    constexpr std::int64_t kFloat = sizeof(float);
    // Pairwise messages go to the owners, so few owners limit the rate.
    const std::int64_t as_if_all_owned = partition.largest() * size() * kFloat;
    return chain_seconds(partition.extent() * kFloat, layout_, chain_chunk(options_)) <
           pairwise_seconds(as_if_all_owned, layout_, options_.chunk_bytes);
  }

  /// Reductions under way go on meanwhile.
  template <class Done, class Awaited>
  void wait_until(const Done& done, const Awaited& awaited, const char* collective) {
    advance_until([&] { return chains_.advance(); }, done, awaited, collective);
  }

  [[nodiscard]] int peer_rank(int peer) const { return layout_.rank(layout_.node(rank()), peer); }

  void wait_until_read(Collective kind, std::uint64_t ticket) {
    const auto first = [&] { return board_->first_behind(&Posting::read, kind, ticket); };
    wait_until([&] { return first() < 0; }, [&] { return peer_rank(first()); },
               kind == Collective::all_gather ? "all_gather" : "reduce_scatter");
  }

  /// Waits while peers may still copy an earlier gather from the memory that the new gather overwrites.
  void wait_for_readers_of(const char* full, std::int64_t bytes, std::uint64_t ticket) {
    const std::uint64_t ring = gathers_.size();
    for (std::uint64_t earlier = ticket < ring ? 0 : ticket - ring; earlier < ticket; ++earlier) {
      if (earlier + ring == ticket || gathers_[earlier % ring].overlaps(full, bytes)) {
        wait_until_read(Collective::all_gather, earlier);
      }
    }
  }

  void wait_for_gather(std::uint64_t ticket) {
    Gather& gather = gathers_[ticket % gathers_.size()];
    require(gather.is_open, "mpi: wait for a gather that was not started");
    wait_until([&] { return are_done(gather.messages, "all_gather"); },
               [&] { return first_late(gather.messages, "all_gather"); }, "all_gather");
    board_->post(Collective::all_gather, ticket, board_->arrays().location_of(gather.full));
    for (int step = 1; step < layout_.ranks_per_node; ++step) {
      const int peer = (board_->local() + step) % layout_.ranks_per_node;
      const PhaseCounter& posted = board_->posting(Collective::all_gather, peer, ticket).posted;
      wait_until([&] { return posted.is_published(ticket + 1); }, [&] { return peer_rank(peer); }, "all_gather");
      copy_column(gather, board_->posted_by(Collective::all_gather, peer, ticket), peer);
    }
    board_->publish_read(Collective::all_gather, ticket);
    gather.is_open = false;
  }

  /// Copies the shards of the ranks with index `peer` on their nodes from that peer's full array.
  void copy_column(const Gather& gather, const char* full, int peer) const {
    for (int node = 0; node < layout_.num_nodes; ++node) {
      const int owner = layout_.rank(node, peer);
      const std::int64_t first = gather.partition.begin(owner) * gather.element;
      copy_bytes(gather.full + first, full + first, gather.partition.size(owner) * gather.element);
    }
  }

  CommunicatorOptions options_;
  NodeLayout layout_;
  std::unique_ptr<Communicator> pairwise_;
  std::unique_ptr<NodeBoard> board_;
  ChainReductions chains_;
  std::vector<Gather> gathers_;
  std::uint64_t next_gather_ = 0;
  bool lacks_room_ = false;  // an array found no room
};

}  // namespace

int ranks_per_node(const Ranks& ranks, const CommunicatorOptions& options) {
  const NodeLayout layout = node_layout(ranks, options.ranks_per_node);
  return layout.num_nodes > 1 ? layout.ranks_per_node : 0;
}

void book_node_buffers(MemoryLedger& ledger, const CommunicatorOptions& options) {
  ledger.book(Memory::communication, "partial sums between nodes",
              ChainReductions::buffer_bytes(chain_chunk(options)) + NodeBoard::bytes(options.under_way));
}

std::unique_ptr<Communicator> over_nodes(std::unique_ptr<Communicator> pairwise, const Ranks& ranks,
                                         MemoryLedger& ledger, const CommunicatorOptions& options) {
  const NodeLayout layout = node_layout(ranks, options.ranks_per_node);
  if (layout.num_nodes == 0 && pairwise->rank() == 0) {
    options.notice(
        "comm.backend = mpi exchanges pairwise between all ranks, which is slower on several nodes: start equally many "
        "ranks on each node, numbered node by node");
  }
  if (layout.num_nodes <= 1) return pairwise;
  const auto control = make_control_communicator(ranks, options.timeout_s, {.checks_calls = false});
  auto board = std::make_unique<NodeBoard>(control_of_node(ranks, layout, options.timeout_s), options.shm_folder,
                                           options.under_way);
  if (!on_all_ranks(*control, board->has_room())) {
    if (pairwise->rank() == 0) {
      options.notice(
          "comm.backend = mpi exchanges pairwise between all ranks, which is slower on several nodes: a node's " +
          options.shm_folder + " has no room");
    }
    return pairwise;
  }
  auto comm = std::make_unique<NodesCommunicator>(ranks, layout, std::move(pairwise), std::move(board), options);
  book_node_buffers(ledger, options);
  return comm;
}

}  // namespace kozero::distributed
