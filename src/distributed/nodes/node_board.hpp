// SPDX-FileCopyrightText: The KoZeRO authors
// SPDX-License-Identifier: Apache-2.0
// node_board.hpp: shared memory among the ranks of one node: arrays, and a posting per rank and collective under way.
//   reduce_scatter   posted: this rank's full array is ready     read: this rank has added its share of all full arrays
//   all_gather       posted: the shards that this rank receives from other nodes are in its full array
//                    read: this rank has copied the shards received by all its peers
// Peers are named by their index on the node.
#pragma once
#include <cstdint>
#include <memory>
#include <new>
#include <string>
#include <utility>
#include <vector>

#include <kozero/distributed/communicator.hpp>
#include "src/distributed/host/shared_arrays.hpp"

namespace kozero::distributed {

class NodeBoard {
 public:
  /// Collective over the node's ranks; `node` carries their control traffic.
  NodeBoard(std::unique_ptr<Communicator> node, const std::string& folder, std::uint64_t under_way)
      : node_(std::move(node)), under_way_(under_way), arrays_(*node_, folder) {
    if (num_peers() == 1) {
      alone_ = std::vector<Posting>(2 * under_way);
      own_ = reinterpret_cast<char*>(alone_.data());
      return;
    }
    own_ = static_cast<char*>(arrays_.add(bytes(under_way)));
    if (own_ == nullptr) return;
    for (std::uint64_t i = 0; i < 2 * under_way; ++i) new (own_ + i * sizeof(Posting)) Posting;
    node_->barrier();
  }

  /// False on all ranks of a node without room: then the board must not be used. A rank alone on its node has room.
  [[nodiscard]] bool has_room() const { return own_ != nullptr; }

  [[nodiscard]] static std::int64_t bytes(std::uint64_t under_way) {
    return static_cast<std::int64_t>(2 * under_way * sizeof(Posting));
  }

  [[nodiscard]] int num_peers() const { return node_->size(); }
  [[nodiscard]] int local() const { return node_->rank(); }
  [[nodiscard]] Communicator& node() { return *node_; }
  [[nodiscard]] SharedArrays& arrays() { return arrays_; }

  /// The posting of collective `ticket` of a kind; reused by the collective `under_way` later.
  [[nodiscard]] Posting& posting(Collective kind, int peer, std::uint64_t ticket) const {
    const std::uint64_t index = static_cast<std::uint64_t>(kind) * under_way_ + ticket % under_way_;
    char* const first = num_peers() == 1 ? own_ : arrays_.at(peer, {0, 0});
    return *std::launder(reinterpret_cast<Posting*>(first + index * sizeof(Posting)));
  }

  void post(Collective kind, std::uint64_t ticket, SharedArrays::Location location) const {
    posting(kind, local(), ticket).location = location;
    posting(kind, local(), ticket).posted.publish(ticket + 1);
  }
  void publish_read(Collective kind, std::uint64_t ticket) const {
    posting(kind, local(), ticket).read.publish(ticket + 1);
  }
  /// The first peer that has not posted (&Posting::posted) or not read (&Posting::read); -1 if all have.
  [[nodiscard]] int first_behind(PhaseCounter Posting::*counter, Collective kind, std::uint64_t ticket) const {
    for (int peer = 0; peer < num_peers(); ++peer) {
      if (!(posting(kind, peer, ticket).*counter).is_published(ticket + 1)) return peer;
    }
    return -1;
  }

  /// The location that `peer` posted, in this process.
  [[nodiscard]] char* posted_by(Collective kind, int peer, std::uint64_t ticket) const {
    return arrays_.at(peer, posting(kind, peer, ticket).location);
  }

 private:
  std::unique_ptr<Communicator> node_;
  std::uint64_t under_way_;
  SharedArrays arrays_;         // the first array holds the postings
  std::vector<Posting> alone_;  // of a rank alone on its node
  char* own_ = nullptr;         // this rank's postings
};

}  // namespace kozero::distributed
