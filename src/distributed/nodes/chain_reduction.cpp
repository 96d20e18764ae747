// SPDX-FileCopyrightText: The KoZeRO authors
// SPDX-License-Identifier: Apache-2.0
// chain_reduction.cpp: the cursors of a flow and of the rank's own shard, and the steps that advance each cursor.
#include <algorithm>
#include <memory>

#include <kozero/core/error.hpp>
#include "src/distributed/group_communicator.hpp"
#include "src/distributed/nodes/chain_reduction.hpp"

namespace kozero::distributed {
namespace {

// Messages of one kind between two ranks are sent and received in the order of items.
enum Tag : int { kAccumulator = 1, kPartial = 2, kResult = 3 };

constexpr std::int64_t kFloat = sizeof(float);

}  // namespace

ChainReductions::ChainReductions(MPI_Comm comm, int rank, const NodeLayout& layout, const NodeBoard& board,
                                 std::uint64_t under_way, std::int64_t chunk_bytes)
    : comm_(comm),
      layout_(layout),
      rank_(rank),
      node_(layout.node(rank)),
      local_(layout.local(rank)),
      board_(board),
      most_bytes_(chunk_bytes),
      chunk_(chunk_extent(chunk_bytes, 1, kFloat)),
      received_("kozero::distributed::chain::received", static_cast<std::size_t>(kWindow * chunk_)),
      sums_("kozero::distributed::chain::sums", static_cast<std::size_t>(kWindow * chunk_)),
      reductions_(under_way) {}

ChainReductions::~ChainReductions() {
  const auto is_under_way = [](const Message& message) { return message.request != MPI_REQUEST_NULL; };
  if (std::ranges::any_of(inputs_, is_under_way)) keep_for_ever(std::make_shared<Buffer>(received_));
  if (std::ranges::any_of(outputs_, is_under_way)) keep_for_ever(std::make_shared<Buffer>(sums_));
}

void ChainReductions::start(const float* full, float* shard, const Partition& partition, Fold fold,
                            SharedArrays::Location location) {
  Reduction& mine = at(next_);
  require(!mine.is_open, "mpi: " + std::to_string(reductions_.size()) +
                             " reductions over nodes are under way, and another is started");
  const std::int64_t bytes = chain_chunk_bytes(partition.extent() * kFloat, layout_, most_bytes_);
  mine = {full, shard, partition, bytes / kFloat, fold};
  mine.last_node = layout_.node(fold.num_ranks(partition.num_ranks()) - 1);
  mine.first_owner_node = layout_.node(partition.num_ranks() - partition.num_owners());
  mine.owner_nodes = layout_.num_nodes - mine.first_owner_node;
  mine.items = node_ > mine.last_node ? 0 : mine.chunks().count() * mine.owner_nodes;
  mine.first_own = num_own_;
  num_own_ += static_cast<std::uint64_t>(mine.chunks().count());
  mine.is_open = true;
  board_.post(Collective::reduce_scatter, next_, location);
  ++next_;
  advance();
}

bool ChainReductions::advance() {
  bool moved = false;
  for (bool again = true; again; moved = moved || again) {
    again = post_input();
    again = send_accumulator() || again;
    again = post_result() || again;
    again = add_item() || again;
    again = complete_result() || again;
  }
  return moved;
}

bool ChainReductions::find_item(Cursor& cursor, bool of_flow) {
  for (; cursor.ticket < next_; ++cursor.ticket, cursor.item = 0) {
    const Reduction& reduction = at(cursor.ticket);
    if (cursor.item < (of_flow ? reduction.items : reduction.chunks().count())) return true;
    if (&cursor == &added_) board_.publish_read(Collective::reduce_scatter, cursor.ticket);
  }
  return false;
}

bool ChainReductions::arrived(Message& message) {
  int done = 1;
  if (message.request != MPI_REQUEST_NULL) check_mpi(MPI_Test(&message.request, &done, MPI_STATUS_IGNORE), "MPI_Test");
  return done != 0;
}

void ChainReductions::send(const float* from, std::int64_t extent, int to, int tag, std::uint64_t ticket,
                           Message& message) {
  message.ticket = ticket;
  message.peer = to;
  if (extent == 0) return;
  check_mpi(MPI_Isend(from, static_cast<int>(extent), MPI_FLOAT, to, tag, comm_, &message.request), "MPI_Isend");
}

void ChainReductions::receive(float* to, std::int64_t extent, int from, int tag, std::uint64_t ticket,
                              Message& message) {
  message.ticket = ticket;
  message.peer = from;
  if (extent == 0) return;
  check_mpi(MPI_Irecv(to, static_cast<int>(extent), MPI_FLOAT, from, tag, comm_, &message.request), "MPI_Irecv");
}

bool ChainReductions::post_input() {
  if (!find_item(posted_, true) || posted_.sequence >= added_.sequence + kWindow) return false;
  const Reduction& reduction = at(posted_.ticket);
  const int owner = layout_.rank(reduction.node_of(posted_.item), local_);
  const std::int64_t extent = reduction.chunks().size(owner, reduction.chunk_of(posted_.item));
  Message& message = inputs_[posted_.slot()];
  float* const to = partial(posted_.slot());
  if (node_ > 0) {
    receive(to, extent, rank_ - layout_.ranks_per_node, kPartial, posted_.ticket, message);
  } else if (reduction.fold.onto && owner != rank_) {
    receive(to, extent, owner, kAccumulator, posted_.ticket, message);
  }
  posted_.pass();
  return true;
}

bool ChainReductions::add_item() {
  if (!find_item(added_, true) || added_.sequence >= posted_.sequence) return false;
  const std::size_t slot = added_.slot();
  if (!arrived(inputs_[slot]) || !arrived(outputs_[slot])) return false;
  if (board_.first_behind(&Posting::posted, Collective::reduce_scatter, added_.ticket) >= 0) return false;
  const Reduction& reduction = at(added_.ticket);
  const Chunks chunks = reduction.chunks();
  const std::int64_t k = reduction.chunk_of(added_.item);
  const int owner = layout_.rank(reduction.node_of(added_.item), local_);
  const bool ends = node_ == reduction.last_node;
  float* const own = owner == rank_ ? reduction.shard + k * reduction.chunk : nullptr;
  float* const to = ends && owner == rank_ ? own : sum(slot);
  if (to == own && !arrived(own_accumulator(reduction, k))) return false;
  sources_.clear();
  if (node_ > 0) {
    sources_.push_back(partial(slot));
  } else if (reduction.fold.onto) {
    sources_.push_back(owner == rank_ ? own : partial(slot));
  }
  const int addends = reduction.fold.num_ranks(reduction.partition.num_ranks());
  for (int peer = 0; peer < layout_.ranks_per_node && layout_.rank(node_, peer) < addends; ++peer) {
    const float* full =
        peer == local_
            ? reduction.full
            : reinterpret_cast<const float*>(board_.posted_by(Collective::reduce_scatter, peer, added_.ticket));
    sources_.push_back(full + chunks.begin(owner, k));
  }
  sum_in_order(sources_.data(), std::ssize(sources_), chunks.size(owner, k), to);
  if (to != own) {
    send(to, chunks.size(owner, k), ends ? owner : rank_ + layout_.ranks_per_node, ends ? kResult : kPartial,
         added_.ticket, outputs_[slot]);
  }
  added_.pass();
  find_item(added_, true);  // marks a finished reduction as read
  return true;
}

bool ChainReductions::has_added_own(const Cursor& own) const {
  const Reduction& reduction = at(own.ticket);
  const std::int64_t item = own.item * reduction.owner_nodes + node_ - reduction.first_owner_node;
  return added_.ticket > own.ticket || (added_.ticket == own.ticket && added_.item > item);
}

bool ChainReductions::send_accumulator() {
  if (!find_item(accumulator_sent_, false) || accumulator_sent_.sequence >= result_complete_.sequence + kWindow)
    return false;
  const Reduction& reduction = at(accumulator_sent_.ticket);
  if (reduction.fold.onto && node_ > 0) {
    send(reduction.shard + accumulator_sent_.item * reduction.chunk,
         reduction.chunks().size(rank_, accumulator_sent_.item), layout_.rank(0, local_), kAccumulator,
         accumulator_sent_.ticket, accumulators_[accumulator_sent_.slot()]);
  }
  accumulator_sent_.pass();
  return true;
}

bool ChainReductions::post_result() {
  if (!find_item(result_posted_, false) || result_posted_.sequence >= accumulator_sent_.sequence) return false;
  const Reduction& reduction = at(result_posted_.ticket);
  if (node_ != reduction.last_node) {
    // The receive overwrites the shard: post it once this rank has read the shard as accumulator or in-place addend.
    const bool is_read_here = node_ < reduction.last_node && (node_ == 0 || !reduction.fold.onto);
    if (!arrived(accumulators_[result_posted_.slot()]) || (is_read_here && !has_added_own(result_posted_)))
      return false;
    receive(reduction.shard + result_posted_.item * reduction.chunk,
            reduction.chunks().size(rank_, result_posted_.item), layout_.rank(reduction.last_node, local_), kResult,
            result_posted_.ticket, results_[result_posted_.slot()]);
  }
  result_posted_.pass();
  return true;
}

bool ChainReductions::complete_result() {
  if (!find_item(result_complete_, false) || result_complete_.sequence >= result_posted_.sequence) return false;
  const Reduction& reduction = at(result_complete_.ticket);
  if (node_ == reduction.last_node ? !has_added_own(result_complete_) : !arrived(results_[result_complete_.slot()]))
    return false;
  if (!arrived(accumulators_[result_complete_.slot()])) return false;
  result_complete_.pass();
  return true;
}

bool ChainReductions::is_done(std::uint64_t ticket) {
  if (find_item(added_, true) && added_.ticket <= ticket) return false;
  if (find_item(result_complete_, false) && result_complete_.ticket <= ticket) return false;
  return std::ranges::all_of(outputs_, [&](Message& output) { return output.ticket > ticket || arrived(output); });
}

int ChainReductions::awaited(std::uint64_t ticket) {
  if (find_item(added_, true) && added_.ticket <= ticket) {
    const int peer = board_.first_behind(&Posting::posted, Collective::reduce_scatter, added_.ticket);
    if (peer >= 0) return layout_.rank(node_, peer);
    const Reduction& reduction = at(added_.ticket);
    for (Message* message : {&inputs_[added_.slot()], &outputs_[added_.slot()],
                             &own_accumulator(reduction, reduction.chunk_of(added_.item))}) {
      if (!arrived(*message)) return message->peer;
    }
  }
  for (auto* messages : {&outputs_, &results_, &accumulators_}) {
    for (Message& message : *messages) {
      if (message.ticket <= ticket && !arrived(message)) return message.peer;
    }
  }
  return layout_.rank(at(ticket).last_node, local_);
}

}  // namespace kozero::distributed
