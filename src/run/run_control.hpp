// SPDX-FileCopyrightText: The KoZeRO authors
// SPDX-License-Identifier: Apache-2.0
// run_control.hpp: the lock of a run's folder, the reasons to stop before the last step, and status.json.
//   RunControl control(session, log, started);     rank 0 locks the folder that the run may continue
//   control.enter(folder, step);                   the folder is the run's: status.json, ranks.json, failures recorded
//   trainer.step(step, control.request())          at each step's gather: this rank's reason to stop; 0: none
//   control.fail(error) | stopped(...) | finish()  the line, status.json
// All ranks receive a reason with the losses of a step, so that all end after the same step. If a rank was lost, the
// ranks do not agree and nothing is saved.
#pragma once
#include <atomic>
#include <chrono>
#include <functional>
#include <memory>
#include <optional>
#include <string>

#include <kozero/core/error.hpp>
#include <kozero/run/provenance.hpp>
#include <kozero/run/session.hpp>
#include <kozero/run/train.hpp>
#include "io/run/metrics.hpp"
#include "io/run/run_folder.hpp"
#include "io/run/run_output.hpp"
#include "io/run/run_status.hpp"
#include "src/run/peer_watch.hpp"

namespace kozero::run {

/// Why a run ends before its last step. The largest reason of all ranks counts. A stop signal's reason is its number.
namespace stop_reason {
inline constexpr int kNone = 0;
inline constexpr int kLastSignal = 99;
inline constexpr int kTimeOver = 100;
inline constexpr int kMetricsLost = 101;
inline constexpr int kFolderLost = 102;
}  // namespace stop_reason

class RunControl {
 public:
  /// Stop signals end the job from here on. Collective; throws Error, seen by all ranks, if another run has locked the
  /// folder.
  RunControl(Session& session, io::Log& log, StartedAs started);
  ~RunControl();
  RunControl(const RunControl&) = delete;
  RunControl& operator=(const RunControl&) = delete;

  /// Rank 0's lock of the run's folder; nullptr on other ranks.
  [[nodiscard]] const io::RunLock* lock() const { return lock_.get(); }
  /// The facts of this run, with the command as the user gave it.
  [[nodiscard]] Facts provenance() const;
  /// Rank 0: locks the run's folder, after creating it if `continued` is "".
  std::string make_folder(const std::string& continued);
  /// The run in this folder continues after `step`. Logs how the folder's last run ended. Collective.
  void enter(const std::string& folder, std::int64_t step);

  /// Steps begin: from now on a stop signal leads to a save.
  void begin_steps();
  /// All is saved: from now on a stop signal ends the job at once.
  void end_steps();
  /// The function that Trainer::step calls at its gather.
  [[nodiscard]] std::function<int()> request();
  /// `step` is done, and the ranks agreed on `reason` in it. Rank 0 writes the step to status.json once in 5 s.
  void count_step(std::int64_t step, int reason);
  /// The ranks agreed on `reason` within a step, which is discarded. `done`: the completed part of the step.
  void count_interruption(const std::string& done, int reason);
  [[nodiscard]] bool interrupted() const { return !discarded_.empty(); }
  /// Why the run stops; stop_reason::kNone if it does not.
  [[nodiscard]] int reason() const { return reason_; }
  [[nodiscard]] bool stopped_by_signal() const { return reason_ > 0 && reason_ <= stop_reason::kLastSignal; }
  /// Whether any rank noted a signal. Collective over `comm`. Called between the batches of an evaluation.
  bool signal_on_any_rank(distributed::Communicator& comm);

  /// Rank 0: writes the row. A failure is a warning, printed once per outage, and with checkpoint.on_error = "stop" a
  /// reason to stop.
  void write(io::MetricsFile& metrics, const io::StepMetrics& row);
  /// Whether rank 0 could not write metrics, with checkpoint.on_error = "stop". Collective.
  [[nodiscard]] bool lost_metrics();
  /// Throws on all ranks if rank 0 lost the folder, or could not write metrics. `saved`: a text on what was saved.
  /// Collective.
  void require_outputs(const std::string& saved = "");
  /// The same, before the run's closing lines: from here on a rank may end before the others.
  void end_outputs();

  /// "run.max_minutes = 5 have passed; `saved`; to go on: COMMAND", recorded, as an error that all ranks throw.
  /// `resume`: for checkpoint.resume of the command.
  [[nodiscard]] Error stopped(std::int64_t steps, const std::string& saved, const std::string& resume);
  void finish();
  /// No part of the run follows: nothing that fails from here on changes the run's status.
  void complete();
  /// Reports the error before anything is destroyed. An error that only this rank has seen ends the job.
  void fail(const Error& error);

 private:
  [[nodiscard]] std::string command(const std::string& resume) const;
  [[nodiscard]] int own_request();
  void look_at_folder();
  [[nodiscard]] bool time_is_over() const;
  /// From here on a failed start is recorded in the folder of the run before, which rank 0 has locked.
  void record_failed_start(const std::string& folder);
  void record_failures();
  /// Each rank watches the next one of its node. Collective.
  void watch_peer();

  Session& session_;
  const io::Deck& deck_;
  distributed::Communicator& control_;
  io::Log& log_;
  StartedAs started_;
  std::unique_ptr<io::RunLock> lock_;             // rank 0's
  std::vector<io::RankProcess> processes_;        // of all ranks
  std::vector<std::string> notes_on_run_before_;  // rank 0's
  std::shared_ptr<const io::RunRecord> record_;
  struct Shared;
  std::shared_ptr<Shared> shared_;  // shared with the threads that report
  int reason_ = stop_reason::kNone;
  std::string discarded_;  // "3 of 16 micro-steps of step 42"; "" if no step was interrupted
  std::unique_ptr<LifeBoard> board_;
  std::unique_ptr<PeerWatch> peer_;
  std::string folder_lost_;
  std::optional<Error> metrics_lost_;
  std::int64_t rows_lost_ = 0;
  std::chrono::steady_clock::time_point looked_ = std::chrono::steady_clock::now();
  std::chrono::steady_clock::time_point recorded_ = looked_;  // the step, in status.json
};

}  // namespace kozero::run
