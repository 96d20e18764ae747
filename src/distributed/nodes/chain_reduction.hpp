// SPDX-FileCopyrightText: The KoZeRO authors
// SPDX-License-Identifier: Apache-2.0
// chain_reduction.hpp: reduce-scatter over several nodes in rank order, by a partial sum that passes through all nodes.
//   owner of the shard --accumulator--> node 0 --partial sum--> node 1 -- ... --> last node --result--> owner
// N nodes of p ranks. Rank j of each node adds the shards whose owners have index j on their nodes. Rank j receives the
// partial sum of a chunk from rank j of the previous node, adds this node's p full arrays from shared memory in rank
// order, and sends the sum to rank j of the next node. So p flows run at once, and all messages of flow j are between
// ranks of index j. A node sends S bytes of sums and its accumulators; pairwise messages would send p S (N-1)/N.
// A fold over the first ranks ends the chain at the node of the last of those ranks.
//   item i of a flow: chunk i / N of the shard of rank j of node i mod N; if the last M nodes own all shards (groups
//   of ranks), chunk i / M of rank j of node N - M + i mod M
// Items alternate between the shards, so that every node receives results at an equal rate. Progress is made only in
// advance(), which every wait calls, so a rank that computes delays the chain until its next wait. The bits are those
// of pairwise exchange.
#pragma once
#include <mpi.h>
#include <array>
#include <cstdint>
#include <vector>

#include <Kokkos_Core.hpp>
#include <kozero/core/parameter_table.hpp>
#include <kozero/distributed/communicator.hpp>
#include "src/distributed/chunks.hpp"
#include "src/distributed/nodes/node_board.hpp"
#include "src/distributed/nodes/node_layout.hpp"

namespace kozero::distributed {

class ChainReductions {
 public:
  static constexpr int kWindow = 4;  ///< chunks under way at each end of a flow

  /// `comm` has the ranks of `layout`; `rank` is this rank. A chunk has at most `chunk_bytes` bytes.
  ChainReductions(MPI_Comm comm, int rank, const NodeLayout& layout, const NodeBoard& board, std::uint64_t under_way,
                  std::int64_t chunk_bytes);
  ~ChainReductions();
  ChainReductions(const ChainReductions&) = delete;
  ChainReductions& operator=(const ChainReductions&) = delete;

  /// Bytes of the two buffer rings.
  static std::int64_t buffer_bytes(std::int64_t chunk_bytes) { return 2 * kWindow * chunk_bytes; }

  /// Ticket of the reduction that start() will begin. It may start once all peers have read reduction
  /// next() - under_way.
  [[nodiscard]] std::uint64_t next() const { return next_; }
  [[nodiscard]] bool is_open(std::uint64_t ticket) const { return at(ticket).is_open; }
  /// `full` is at `location` of the board's arrays if nodes have several ranks.
  void start(const float* full, float* shard, const Partition& partition, Fold fold, SharedArrays::Location location);
  /// Makes progress without waiting. Returns whether any was made.
  bool advance();
  /// Whether this rank has its shard and has sent everything that other ranks need for the reduction.
  [[nodiscard]] bool is_done(std::uint64_t ticket);
  void close(std::uint64_t ticket) { at(ticket).is_open = false; }
  /// A rank that this rank waits for.
  [[nodiscard]] int awaited(std::uint64_t ticket);

 private:
  struct Reduction {
    const float* full = nullptr;
    float* shard = nullptr;
    Partition partition{0, 1};
    std::int64_t chunk = 1;
    Fold fold;
    int last_node = 0;         ///< the chain's last node
    int first_owner_node = 0;  ///< nodes from this one to the last own shards
    int owner_nodes = 1;
    std::int64_t items = 0;       ///< of this rank's flow; 0 on nodes after last_node
    std::uint64_t first_own = 0;  ///< sequence number of the first chunk of this rank's shard
    bool is_open = false;

    [[nodiscard]] Chunks chunks() const { return {partition, chunk}; }
    [[nodiscard]] std::int64_t chunk_of(std::int64_t item) const { return item / owner_nodes; }
    [[nodiscard]] int node_of(std::int64_t item) const {
      return first_owner_node + static_cast<int>(item % owner_nodes);
    }
  };
  /// Item `item` of reduction `ticket`; `sequence` counts the items of all reductions.
  struct Cursor {
    std::uint64_t ticket = 0;
    std::int64_t item = 0;
    std::uint64_t sequence = 0;

    void pass() { ++item, ++sequence; }
    [[nodiscard]] std::size_t slot() const { return sequence % kWindow; }
  };
  struct Message {
    MPI_Request request = MPI_REQUEST_NULL;
    std::uint64_t ticket = 0;
    int peer = -1;
  };
  using Buffer = Kokkos::View<float*, Kokkos::HostSpace>;

  [[nodiscard]] Reduction& at(std::uint64_t ticket) { return reductions_[ticket % reductions_.size()]; }
  [[nodiscard]] const Reduction& at(std::uint64_t ticket) const { return reductions_[ticket % reductions_.size()]; }
  /// Moves the cursor to its next item, past completed reductions. Returns whether an item is left.
  bool find_item(Cursor& cursor, bool of_flow);
  [[nodiscard]] static bool arrived(Message& message);
  void send(const float* from, std::int64_t extent, int to, int tag, std::uint64_t ticket, Message& message);
  void receive(float* to, std::int64_t extent, int from, int tag, std::uint64_t ticket, Message& message);

  bool post_input();
  bool add_item();
  bool send_accumulator();
  bool post_result();
  bool complete_result();

  [[nodiscard]] Message& own_accumulator(const Reduction& reduction, std::int64_t k) {
    return accumulators_[(reduction.first_own + static_cast<std::uint64_t>(k)) % kWindow];
  }

  /// Whether this rank has added its node's arrays to the chunk of its own shard at cursor `own`.
  [[nodiscard]] bool has_added_own(const Cursor& own) const;
  [[nodiscard]] float* partial(std::size_t slot) { return received_.data() + static_cast<std::int64_t>(slot) * chunk_; }
  [[nodiscard]] float* sum(std::size_t slot) { return sums_.data() + static_cast<std::int64_t>(slot) * chunk_; }

  MPI_Comm comm_;
  NodeLayout layout_;
  int rank_;
  int node_;
  int local_;
  const NodeBoard& board_;
  std::int64_t most_bytes_;
  std::int64_t chunk_;  ///< elements of a buffer
  Buffer received_;
  Buffer sums_;
  std::vector<Reduction> reductions_;
  std::uint64_t next_ = 0;
  std::vector<const float*> sources_;

  // Cursors of the flow: receives are posted ahead of the sums.
  Cursor posted_;
  Cursor added_;
  std::array<Message, kWindow> inputs_;
  std::array<Message, kWindow> outputs_;
  // This rank's own shard, chunk by chunk.
  Cursor accumulator_sent_;
  Cursor result_posted_;
  Cursor result_complete_;
  std::uint64_t num_own_ = 0;  ///< chunks of own shards in all reductions started so far
  std::array<Message, kWindow> accumulators_;
  std::array<Message, kWindow> results_;
};

}  // namespace kozero::distributed
