// SPDX-FileCopyrightText: The KoZeRO authors
// SPDX-License-Identifier: Apache-2.0
// peer_watch.hpp: the death of another rank's process on the same node, seen by a thread of its own.
//   LifeBoard board(control);                        collective
//   PeerWatch watch(board, peer, [] { ... });        the peer died before it left the board
#pragma once
#include <atomic>
#include <cstddef>
#include <functional>
#include <thread>

#include <kozero/distributed/communicator.hpp>

namespace kozero::run {

/// Memory that the ranks of a node share, with one robust mutex per rank, which the rank's main thread holds while it
/// lives. When the thread dies by whatever cause, the kernel wakes a waiter before it frees the process's memory and
/// closes its files (set_robust_list(2)). The launcher notices the death by a closed file, kills the other ranks and
/// leaves them about a millisecond: too short for pidfd_open(2), which tells at the very end of the exit.
class LifeBoard {
 public:
  /// Collective. This thread holds the mutex of this rank from here on. If /dev/shm has no room for a page, the board
  /// is empty and no death is seen.
  explicit LifeBoard(distributed::Communicator& comm);
  /// This rank leaves the board. Must be called by the thread that made the board.
  ~LifeBoard();
  LifeBoard(const LifeBoard&) = delete;
  LifeBoard& operator=(const LifeBoard&) = delete;

  /// The next rank, cyclically, on the board of this node; this rank if it is alone.
  [[nodiscard]] int next_rank() const { return next_; }

  enum class Sign { lives, left, died };
  /// Waits at most 0.1 s for the peer's death or departure.
  [[nodiscard]] Sign await(int peer) const;
  /// Whether no other death was claimed on this node. A launcher kills the other ranks after the first one died.
  [[nodiscard]] bool claim_first_death() const;

 private:
  struct Memory;

  Memory* memory_ = nullptr;
  std::size_t bytes_ = 0;
  int rank_ = 0;
  int next_ = 0;
};

class PeerWatch {
 public:
  /// Calls `died`, once, on a thread of its own, if the peer is the first of this node to die. `board` outlives it.
  PeerWatch(const LifeBoard& board, int peer, std::function<void()> died);
  /// Returns when `died` is not running and will never run. Must not be called from `died`.
  ~PeerWatch();
  PeerWatch(const PeerWatch&) = delete;
  PeerWatch& operator=(const PeerWatch&) = delete;

 private:
  std::atomic<bool> stopping_ = false;
  std::thread thread_;
};

}  // namespace kozero::run
