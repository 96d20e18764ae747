// SPDX-FileCopyrightText: The KoZeRO authors
// SPDX-License-Identifier: Apache-2.0
// saving.hpp: a run's checkpoints by the deck's [checkpoint] keys: when and how they are saved, and the log lines.
//   after each step: read_clock() and look(), then save(...) if due(step); at the end finish()
// The next look() reports a failed save on all ranks: it ends the run with Error(write), or is a warning if
// checkpoint.on_error = "continue". A lost rank always ends the run. A save for which training waits longer than
// checkpoint.io_timeout_s has failed too; no further save begins until its thread returns.
#pragma once
#include <chrono>
#include <memory>
#include <optional>
#include <string>
#include <utility>

#include <kozero/run/session.hpp>
#include <kozero/train/checkpoint.hpp>
#include <kozero/train/settings.hpp>
#include "io/run/run_output.hpp"

namespace kozero::run {

class Saving {
 public:
  /// For the run in `folder`, whose lock must outlive the object. Collective.
  Saving(Session& session, train::Engine& engine, io::Log& log, std::shared_ptr<const io::HeldFolder> folder);

  /// Rank 0 decides for all ranks whether checkpoint.every_minutes have passed since the last save began. Collective.
  void read_clock();
  /// Whether a save follows this step, which may be the run's last. The same on all ranks.
  [[nodiscard]] bool due(std::int64_t step, bool last) const;
  /// Waits for the save before, then begins this one. `texts`: rank 0's small files. `prune`: then removes checkpoints
  /// beyond checkpoint.keep; false while steps are skipped, since the newest checkpoints may have a ruined state.
  void save(const io::CheckpointRecord& record, std::map<std::string, std::string> texts, bool prune);
  /// Reports a save that has ended on all ranks. Collective.
  void look();
  /// After the last step: waits for the last save and reports it, then saves a state that was left out.
  void finish();
  /// The last step whose checkpoint is complete; -1 if none was saved.
  [[nodiscard]] std::int64_t saved_step() const { return saved_step_; }
  /// Seconds that saving stalled training since the last call.
  [[nodiscard]] double take_stall() { return std::exchange(stall_s_, 0.0); }

 private:
  using Clock = std::chrono::steady_clock;

  /// Waits for the save under way, at most `longest_s`. Returns false if it hangs and the run continues. Collective.
  bool await_last(double longest_s);
  /// Ends the job if `stops`, else warns.
  void refuse_hanging(bool stops) const;
  void tell(const train::SaveReport& report) const;
  /// Reports a save that has ended; throws if its failure ends the run.
  void conclude(const train::SaveReport& report);

  const io::CheckpointKeys& keys_;
  distributed::Communicator& control_;
  io::Log& log_;
  std::shared_ptr<const io::HeldFolder> folder_;
  train::CheckpointSaver saver_;
  Clock::time_point last_begin_ = Clock::now();
  bool time_has_passed_ = false;  ///< checkpoint.every_minutes, as of the last read_clock()
  std::int64_t saved_step_ = -1;
  double interval_s_ = 0.0;  ///< between the last two saves' beginnings
  double waited_s_ = 0.0;    ///< time that the save under way waited for the one before
  double stall_s_ = 0.0;
  std::optional<train::SaveOrder> left_out_;  ///< the newest save that did not begin, since the one before hangs
  bool hangs_ = false;                        ///< the wait for the save under way timed out
};

/// Whether a save may run beside the training: any thread may call MPI, or there is one rank.
bool can_save_beside(const distributed::Environment& environment);

}  // namespace kozero::run
