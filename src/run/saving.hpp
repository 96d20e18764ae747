// SPDX-FileCopyrightText: The KoZeRO authors
// SPDX-License-Identifier: Apache-2.0
// saving.hpp: a run's checkpoints by the deck's [checkpoint] keys: when, how, and what is said of each.
//   after each step: look(), then save(...) where due(step); at the end finish()
// A save that fails is told of on the next look, on all ranks: it ends the run with Error(write), or is a warning where
// checkpoint.on_error = "continue". A lost rank ends it in any case. A save that training waits for longer than
// checkpoint.io_timeout_s has failed too; until its thread comes back no other is begun.
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
  /// Of the run in `folder`, whose lock outlives this. Collective.
  Saving(Session& session, train::Engine& engine, io::Log& log, std::shared_ptr<const io::HeldFolder> folder);

  /// Whether a save follows this step, which may be the run's last.
  [[nodiscard]] bool due(std::int64_t step, bool last) const;
  /// Waits for the save before, then begins this one. `texts`: small files, rank 0's. `prune`: older checkpoints beyond
  /// checkpoint.keep are removed after it; not while steps are left out, when the newest ones may hold a ruined state.
  void save(const io::CheckpointRecord& record, std::map<std::string, std::string> texts, bool prune);
  /// Tells of a save that has ended on all ranks. Collective.
  void look();
  /// After the last step: waits for the last save and tells of it, and makes up for one that was left out.
  void finish();
  /// The last step whose checkpoint is complete; -1 where none was saved.
  [[nodiscard]] std::int64_t saved_step() const { return saved_step_; }
  /// Seconds that saving stalled training since the last call.
  [[nodiscard]] double take_stall() { return std::exchange(stall_s_, 0.0); }

 private:
  using Clock = std::chrono::steady_clock;

  /// Waits for a save that is under way, `longest_s` at most. False where it hangs and the run goes on. Collective.
  bool await_last(double longest_s);
  /// Ends the job where it `stops` the run, else warns.
  void refuse_hanging(bool stops) const;
  void tell(const train::SaveReport& report) const;
  /// Reports a save that has ended; throws where it failed and that ends the run.
  void conclude(const train::SaveReport& report);

  const io::CheckpointKeys& keys_;
  distributed::Communicator& control_;
  io::Log& log_;
  std::shared_ptr<const io::HeldFolder> folder_;
  train::CheckpointSaver saver_;
  Clock::time_point last_begin_ = Clock::now();
  std::int64_t saved_step_ = -1;
  double interval_s_ = 0.0;  ///< between the last two saves' beginnings
  double waited_s_ = 0.0;    ///< by the save under way, for the one before it
  double stall_s_ = 0.0;
  std::optional<train::SaveOrder> left_out_;  ///< the newest, because the one before hangs
  bool hangs_ = false;                        ///< the save under way was waited for in vain
};

/// Whether a save may run beside the training: any thread may call MPI, or no other rank is there to be called.
bool can_save_beside(const distributed::Environment& environment);

}  // namespace kozero::run
