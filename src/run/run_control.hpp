// SPDX-FileCopyrightText: The KoZeRO authors
// SPDX-License-Identifier: Apache-2.0
// run_control.hpp: who may write into a run's folder, why a run ends before its last step, and what is left behind
// then.
//   RunControl control(session, log, started);     rank 0 locks the folder that the run may continue
//   control.enter(folder, step);                   the folder is the run's: status.json, ranks.json, failures recorded
//   trainer.step(step, control.request())          at each step's gather: this rank's reason to stop, 0 without one
//   control.fail(error) | stopped(...) | finish()  the line, status.json
// A reason reaches all ranks with the losses of a step, so that all end after the same one; where a rank was lost, they
// do not agree and nothing is saved.
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

/// Why a run ends before its last step; the largest of all ranks' counts. A stop signal's reason is its number.
namespace stop_reason {
inline constexpr int kNone = 0;
inline constexpr int kLastSignal = 99;
inline constexpr int kTimeOver = 100;
inline constexpr int kMetricsLost = 101;
inline constexpr int kFolderLost = 102;
}  // namespace stop_reason

class RunControl {
 public:
  /// Stop signals end the job from here on. Collective; throws Error, seen by all ranks, where another run holds the
  /// folder.
  RunControl(Session& session, io::Log& log, StartedAs started);
  ~RunControl();
  RunControl(const RunControl&) = delete;
  RunControl& operator=(const RunControl&) = delete;

  /// Rank 0's, of the run's folder; nullptr on other ranks.
  [[nodiscard]] const io::RunLock* lock() const { return lock_.get(); }
  /// Of this run, as its command was given.
  [[nodiscard]] Facts provenance() const;
  /// Rank 0: the run's folder, made where `continued` is "", locked in any case.
  std::string make_folder(const std::string& continued);
  /// The folder is this run's, after `step`. Tells what became of the run before in it. Collective.
  void enter(const std::string& folder, std::int64_t step);

  /// Steps begin: a stop signal is answered by a save from now on.
  void begin_steps();
  /// All is saved: a stop signal ends the job at once again.
  void end_steps();
  /// What Trainer::step asks at its gather.
  [[nodiscard]] std::function<int()> request();
  /// `step` is done, and the ranks agreed on `reason` in it. Rank 0 writes the step to status.json once in 5 s.
  void count_step(std::int64_t step, int reason);
  /// The ranks agreed on `reason` within a step, which is discarded: `done` says how much of it.
  void count_interruption(const std::string& done, int reason);
  [[nodiscard]] bool interrupted() const { return !discarded_.empty(); }
  /// Why the run stops; stop_reason::kNone while it does not.
  [[nodiscard]] int reason() const { return reason_; }
  [[nodiscard]] bool stopped_by_signal() const { return reason_ > 0 && reason_ <= stop_reason::kLastSignal; }
  /// A signal was noted on any rank. Collective over `comm`: between the batches of an evaluation.
  bool signal_on_any_rank(distributed::Communicator& comm);

  /// Rank 0: writes the row. A failure is a warning, once an outage, and under checkpoint.on_error = "stop" a reason to
  /// stop.
  void write(io::MetricsFile& metrics, const io::StepMetrics& row);
  /// Whether rank 0 could not write metrics, under checkpoint.on_error = "stop". Collective.
  [[nodiscard]] bool lost_metrics();
  /// Throws on all ranks what ended the run on rank 0: the folder is lost, or metrics are; then with `saved`, a text on
  /// what could be saved nevertheless. Collective.
  void require_outputs(const std::string& saved = "");
  /// The same, before the run's last words: from here on a rank may end before the others.
  void end_outputs();

  /// "run.max_minutes = 5 have passed; `saved`; to go on: COMMAND", recorded, as an error that all ranks throw.
  /// `resume`: for checkpoint.resume of the command.
  [[nodiscard]] Error stopped(std::int64_t steps, const std::string& saved, const std::string& resume);
  void finish();
  /// Reports the error, before anything is destroyed; one that only this rank met ends the job.
  void fail(const Error& error);

 private:
  [[nodiscard]] std::string command(const std::string& resume) const;
  [[nodiscard]] int own_request();
  void look_at_folder();
  [[nodiscard]] bool time_is_over() const;
  /// A start that fails from here on says so in the folder of the run before; rank 0 holds its lock.
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
  std::shared_ptr<Shared> shared_;  // with the threads that report
  int reason_ = stop_reason::kNone;
  std::string discarded_;  // "3 of 16 micro-steps of step 42"; "" if no step was interrupted
  std::unique_ptr<LifeBoard> board_;
  std::unique_ptr<PeerWatch> peer_;
  std::string folder_lost_;
  std::optional<Error> metrics_lost_;
  std::int64_t rows_lost_ = 0;
  std::chrono::steady_clock::time_point start_ = std::chrono::steady_clock::now();
  std::chrono::steady_clock::time_point looked_ = start_;
  std::chrono::steady_clock::time_point recorded_ = start_;  // the step, in status.json
};

}  // namespace kozero::run
