// SPDX-FileCopyrightText: The KoZeRO authors
// SPDX-License-Identifier: Apache-2.0
// training_run.hpp: a whole run, from a checked deck to its folder's last line.
//   data, settings and plan; resume point; memory; banner; steps with metrics, evaluations and checkpoints;
//   weights file, closing evaluation, sample
#pragma once
#include <optional>

#include <kozero/core/timing.hpp>
#include <kozero/dist/communicator_decorators.hpp>
#include <kozero/run/engine_on_ranks.hpp>
#include <kozero/run/provenance.hpp>
#include <kozero/run/session.hpp>
#include <kozero/run/train.hpp>
#include <kozero/train/data_check.hpp>
#include <kozero/train/data_set.hpp>
#include <kozero/train/evaluation.hpp>
#include <kozero/train/run_files.hpp>
#include <kozero/train/settings.hpp>
#include "io/run/run_output.hpp"
#include "src/run/run_control.hpp"
#include "src/run/saving.hpp"

namespace kozero::run {

class TrainingRun {
 public:
  /// Locks the run's folder where it may be continued, opens the data, plans and takes the memory, creates the folder.
  /// Throws Error, seen by all ranks, before any large memory is taken where the plan does not fit.
  TrainingRun(Session& session, const StartedAs& started);

  /// Throws Error that was reported already, while nothing was destroyed: members may wait for a disk or a rank.
  RunSummary execute();

 private:
  /// This run's state besides tensors, after `step`; what a checkpoint must agree with.
  [[nodiscard]] io::CheckpointRecord record_after(std::int64_t step, const train::LossScaler& loss_scaler,
                                                  std::optional<double> validation_loss = {}) const;
  [[nodiscard]] std::map<std::string, std::string> small_files() const;
  /// Where training data are others than the resume point's: a text that says so, else "".
  [[nodiscard]] std::string other_data() const;
  /// Brings the data's identity up to date, for a checkpoint. Collective.
  void identify_data();
  void run_to_the_end();
  /// After a stop signal, or within a step: the step's checkpoint, or the weights, and nothing more.
  [[noreturn]] void stop_at_once();
  /// The ranks agreed to stop within a step: the state is that of the step before, which is saved if it was not.
  void save_before_interruption(const train::StepResult& interrupted);
  /// The run ends before its last step, in good order: what it leaves, and the command that goes on.
  [[nodiscard]] Error stopped();
  /// "its checkpoint is run/step_000000012": what is left for a resume. Called after the last save.
  [[nodiscard]] std::string saved_text() const;
  /// metrics.jsonl cannot be written: saves what can be saved. Throws the reason on all ranks.
  [[noreturn]] void stop_without_metrics();
  void create_folder();
  /// Rank 0: metrics.jsonl, up to the step that the run resumes after. Collective.
  std::optional<io::MetricsFile> open_metrics();
  /// If run.dir was taken: how the newest run there stands, what goes on with it, and this run's folder; else "".
  [[nodiscard]] std::string note_on_other_run() const;
  /// Gives log, metrics and deck of a run that saved no checkpoint other names; returns these, for a line.
  [[nodiscard]] std::string set_aside_run_before() const;
  void continue_folder();
  void say_banner();
  /// The state of the checkpoint that the run resumes from, or of a newer one if another run's trainer removes it
  /// meanwhile. Returns the optimizer states that it lacks.
  std::vector<std::string> load_resume_point();
  /// Initial weights, or those and the optimizer's state of the resume point.
  void begin();
  void say_memory();
  void train_all_steps();
  std::optional<double> evaluate_after(std::int64_t step);
  void say_skipped(const train::StepResult& result, double next_scale);
  /// Operations of the model over those that the GPUs could have done.
  [[nodiscard]] std::optional<double> utilisation(double tokens_per_s) const;
  io::StepMetrics metrics_of(const train::StepResult& result, double seconds, double epoch);
  void save_weights();
  void say_evaluation();
  void say_sample();
  [[nodiscard]] train::Engine& engine() const { return on_ranks_->engine(); }
  [[nodiscard]] std::string path_of(const std::string& file) const { return folder_ + "/" + file; }

  MemoryUse memory_use_;  // first: before anything is taken
  Session& session_;
  const io::Deck& deck_;
  dist::Communicator& control_;
  std::vector<std::string> start_notes_;
  std::string folder_;
  io::Log log_;
  RunControl run_;
  Facts provenance_;
  std::string kept_;  ///< set_aside_run_before()
  train::DataSet data_;
  std::optional<train::DataCheck> data_check_;
  io::DataIdentity data_identity_;
  std::map<std::string, std::string> small_files_;  ///< of every checkpoint, rank 0's
  train::Settings settings_;
  train::ResumePoint resume_;
  std::shared_ptr<const io::HeldFolder> held_;  ///< folder_, for saves
  std::optional<EngineOnRanks> on_ranks_;
  std::optional<Saving> saving_;
  bool is_saved_already_ = false;  ///< the checkpoint of an interruption was there, such as the one resumed from
  std::optional<train::Validation> validation_;
  std::optional<train::Evaluation> last_evaluation_;  ///< of the newest step's state; none where it was not measured
  std::int64_t tokens_ = 0;                           ///< predicted so far
  ThinnedSeries tokens_per_s_;                        ///< of all steps of this process but its first
  double peak_flops_ = 0.0;  ///< published, a second, of all the run's GPUs; 0 where it is not known
  RunSummary summary_;
};

}  // namespace kozero::run
