// SPDX-FileCopyrightText: The KoZeRO authors
// SPDX-License-Identifier: Apache-2.0
// checkpoint_saver.hpp: saves one checkpoint at a time, from a copy of the state while training goes on.
//   saver.begin(order)      the state is copied to staging; a thread of its own writes, on a communicator of its own
//   saver.ended(comm)       after each step: the report, once every rank has written
//   saver.wait(comm, s)     the same, waiting s seconds for it at most
// The thread's own waits have no such limit: they go on while the ranks live (dist/control_communicator.hpp), so that a
// slow disk is no lost rank. The training's thread decides how long is too long.
// Without staging begin() writes and returns when all is done. Older checkpoints are pruned after the commit. The
// thread calls neither Kokkos nor the training's communicator, and changes no bit of the training.
#pragma once
#include <future>
#include <memory>
#include <optional>

#include <kozero/core/error.hpp>
#include <kozero/train/checkpoint.hpp>

namespace kozero::train {

struct SaveOrder {
  std::string run_folder;
  io::CheckpointRecord record;
  std::map<std::string, std::string> texts;  ///< small files, rank 0's
  std::int64_t keep = 0;                     ///< checkpoints that stay; 0: all
  bool keep_best = false;                    ///< and the one with the lowest validation loss
};

/// What became of a save; the same on all ranks, but for the times.
struct SaveReport {
  std::int64_t step = 0;
  std::string folder;
  std::int64_t bytes = 0;  ///< of the state's file
  double seconds = 0.0;    ///< from begin() to the commit
  double stall_s = 0.0;    ///< of them, training stood still
  bool is_best = false;    ///< its validation loss is the lowest; rank 0's, where that one is kept
  std::optional<Error> problem = {};
};

class CheckpointSaver {
 public:
  /// `staging`: nullptr for synchronous saves. `comm`: the saver's own, for control messages alone.
  CheckpointSaver(Parts parts, Staging* staging, std::unique_ptr<dist::Communicator> comm);
  /// Waits for a save that is under way.
  ~CheckpointSaver() = default;
  CheckpointSaver(const CheckpointSaver&) = delete;
  CheckpointSaver& operator=(const CheckpointSaver&) = delete;

  /// None may be under way.
  void begin(const SaveOrder& order);
  [[nodiscard]] bool under_way() const { return report_.valid(); }
  [[nodiscard]] bool asynchronous() const { return staging_ != nullptr; }
  /// The report, where a save was under way and every rank's part of it has ended. Collective over `comm`.
  std::optional<SaveReport> ended(dist::Communicator& comm);
  /// The same after waiting for `longest_s` at most; where it gives up, under_way() is still true. Collective.
  std::optional<SaveReport> wait(dist::Communicator& comm, double longest_s);
  /// Which ranks' writing the others waited for when ended() or wait() was called last: "rank 1"; the same on all
  /// ranks.
  [[nodiscard]] const std::string& slow_ranks() const { return slow_ranks_; }
  [[nodiscard]] std::int64_t step() const { return step_; }
  /// Waits for this rank's part. None where no save was under way.
  std::optional<SaveReport> wait();

 private:
  [[nodiscard]] SaveReport write(const SaveOrder& order, const io::CheckpointContents& contents) const;

  Parts parts_;
  Staging* staging_;
  std::unique_ptr<dist::Communicator> comm_;
  std::int64_t step_ = 0;  // of the newest save
  std::string slow_ranks_;
  std::future<SaveReport> report_;  // behind what its thread uses
};

}  // namespace kozero::train
