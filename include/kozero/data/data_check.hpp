// SPDX-FileCopyrightText: The KoZeRO authors
// SPDX-License-Identifier: Apache-2.0
// data_check.hpp: reads all token shards once, checks every block's hash against the hash recorded beside the shard and
// every id against the vocabulary, and computes the data's identity.
//   block b, counted over all shards, is read by rank b mod n, in a thread of low priority beside the training
// A DataIdentity (io/checkpoint/manifest.hpp) is a hash over the training shards in their order. `sampled` is known at
// once. `whole` covers every byte. If every shard has recorded hashes on every rank, `whole` is known at once, else
// when all ranks have read their blocks.
#pragma once
#include <atomic>
#include <chrono>
#include <future>
#include <memory>
#include <string>
#include <vector>

#include <kozero/data/token_shard.hpp>
#include <kozero/distributed/communicator.hpp>
#include "io/checkpoint/manifest.hpp"

namespace kozero::data {

class DataCheck {
 public:
  using Shards = std::shared_ptr<const TokenShards>;

  /// The data's identity is the first group's; null groups are ignored. Collective. Throws Error(input), seen by
  /// all ranks, where the ranks see different shards or different recorded hashes.
  DataCheck(const std::vector<Shards>& groups, distributed::Communicator& comm);
  /// Stops the thread within a chunk of 256 KiB.
  ~DataCheck();
  DataCheck(const DataCheck&) = delete;
  DataCheck& operator=(const DataCheck&) = delete;

  /// Starts the thread.
  void start();
  /// Throws the error that this rank's thread found: Error(input), seen by this rank alone. Waits at most `at_most`.
  void look(std::chrono::milliseconds at_most = {});
  /// Waits until all ranks have read all blocks. Collective. Throws Error(input), seen by all ranks.
  void finish(distributed::Communicator& comm);
  /// Whether this rank has read all its blocks.
  [[nodiscard]] bool done() const { return !reading_.valid() && started_; }

  /// The data's identity as far as it is known. Collective.
  io::DataIdentity identity(distributed::Communicator& comm);

 private:
  struct Block {
    const TokenShard* shard = nullptr;
    std::int64_t block = 0;   ///< of the shard
    std::int64_t number = 0;  ///< over all shards
    bool identifies = false;  ///< part of the data's identity
  };

  /// Uses the recorded hashes only if every rank has them all. Collective.
  void identify_by_recorded_hashes(distributed::Communicator& comm);
  void list_blocks(const Shards& group, bool identifies);
  [[nodiscard]] std::uint64_t read_blocks() const;

  std::vector<Shards> groups_;
  std::vector<Block> blocks_;  ///< of all ranks
  int rank_;
  int num_ranks_;
  std::atomic<bool> stop_ = false;
  bool started_ = false;
  std::uint64_t sum_ = 0;  ///< over this rank's blocks, once they are read
  io::DataIdentity identity_;
  std::future<std::uint64_t> reading_;  // declared after the members that its thread uses
};

/// How `mine` differs from `saved`; "" if it does not, or if the hashes known to both do not show a difference.
std::string difference(const io::DataIdentity& saved, const io::DataIdentity& mine);

}  // namespace kozero::data
