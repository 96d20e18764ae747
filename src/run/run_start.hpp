// SPDX-FileCopyrightText: The KoZeRO authors
// SPDX-License-Identifier: Apache-2.0
// run_start.hpp: the start of a training run, fresh or resumed, and the parts that stay the same until its end.
//   RunStart start(session, started);   locks and makes the run's folder, opens the data, allocates the memory
//   start.fill_state();                 initial weights, or the state of the resume point
// The constructor is collective, as are the member functions that say so. Throws Error, seen by all ranks.
#pragma once
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include <kozero/data/data_check.hpp>
#include <kozero/data/data_set.hpp>
#include <kozero/run/engine_on_ranks.hpp>
#include <kozero/run/provenance.hpp>
#include <kozero/run/session.hpp>
#include <kozero/run/train.hpp>
#include <kozero/train/run_files.hpp>
#include <kozero/train/settings.hpp>
#include "io/run/metrics.hpp"
#include "io/run/run_output.hpp"
#include "src/run/run_control.hpp"

namespace kozero::run {

/// Thrown on all ranks: the run goes on after `step`, which is of another lesson of the curriculum, or epoch of a
/// corpus that grows, than the deck.
struct OtherPart {
  std::int64_t step = 0;
  std::string corpus = {};  ///< for Deck::corpus
};

class RunStart {
 public:
  /// Locks the run's folder if it may be continued, opens the data, plans and allocates memory, creates the folder.
  /// Throws Error before any large allocation if the plan does not fit; OtherPart.
  RunStart(Session& session, const StartedAs& started);
  RunStart(const RunStart&) = delete;
  RunStart& operator=(const RunStart&) = delete;

  [[nodiscard]] Session& session() const { return session_; }
  [[nodiscard]] const io::Deck& deck() const { return deck_; }
  [[nodiscard]] distributed::Communicator& control_comm() const { return control_; }
  [[nodiscard]] io::Log& log() { return log_; }
  [[nodiscard]] RunControl& control() { return run_; }
  [[nodiscard]] const data::DataSet& data() const { return data_; }
  [[nodiscard]] data::DataCheck& data_check() { return *data_check_; }
  [[nodiscard]] const train::Settings& settings() const { return settings_; }
  [[nodiscard]] EngineOnRanks& on_ranks() { return *on_ranks_; }
  [[nodiscard]] train::Engine& engine() const { return on_ranks_->engine(); }
  [[nodiscard]] const MemoryUse& memory_use() const { return memory_use_; }
  [[nodiscard]] const std::vector<std::string>& notes() const { return notes_; }
  /// The identity of the base of adapters; "" without adapters. After fill_state().
  [[nodiscard]] const std::string& base() const { return base_; }
  /// The run's folder, for saves.
  [[nodiscard]] const std::shared_ptr<const io::HeldFolder>& held_folder() const { return held_; }
  /// The texts of the small files of every checkpoint; rank 0's.
  [[nodiscard]] const std::map<std::string, std::string>& small_files() const { return small_files_; }
  [[nodiscard]] const std::string& folder() const { return folder_; }
  [[nodiscard]] std::string path_of(const std::string& file) const { return folder_ + "/" + file; }

  /// Initial weights, or the weights and the optimizer's state of the resume point. Collective.
  void fill_state();
  /// The step that the run goes on from, 0 for a fresh one, and the tokens up to it.
  [[nodiscard]] std::int64_t step() const { return resume_.record.step; }
  [[nodiscard]] std::int64_t tokens() const { return resume_.source.empty() ? 0 : resume_.record.tokens; }
  /// Rank 0: metrics.jsonl, up to step(). Collective.
  std::optional<io::MetricsFile> open_metrics();

  /// The run's state besides tensors after `step`, when `tokens` were predicted; a checkpoint must agree with it.
  [[nodiscard]] io::CheckpointRecord record_after(std::int64_t step, std::int64_t tokens,
                                                  const train::LossScaler& loss_scaler,
                                                  std::optional<double> validation_loss = {}) const;
  /// Brings the data's identity up to date, for a checkpoint. Collective.
  void identify_data();

 private:
  void require_lesson() const;
  void require_epoch() const;
  void create_folder();
  void continue_folder();
  /// If run.dir had a run: the status of the newest run there, the command that continues it, and this run's folder;
  /// else "".
  [[nodiscard]] std::string note_on_other_run() const;
  /// Renames log, metrics and deck of an earlier run without a checkpoint; returns the new names, for a line.
  [[nodiscard]] std::string set_aside_run_before() const;
  [[nodiscard]] std::map<std::string, std::string> texts_of_small_files() const;
  /// A note if the training data differ from the resume point's, else "".
  [[nodiscard]] std::string other_data() const;
  [[nodiscard]] train::ResumePoint find_resume_point() const;
  /// The state of the checkpoint that the run resumes from, or of a newer one if another run's trainer removes it
  /// meanwhile. Returns the names of optimizer states that the checkpoint lacks.
  io::AbsentState load_resume_point();

  MemoryUse memory_use_;  // first: before any allocation
  Session& session_;
  const io::Deck& deck_;
  distributed::Communicator& control_;
  std::vector<std::string> notes_;
  std::string folder_;
  io::Log log_;
  RunControl run_;
  Facts provenance_;
  std::string kept_;  ///< set_aside_run_before()
  data::DataSet data_;
  std::optional<data::DataCheck> data_check_;
  io::DataIdentity data_identity_;
  std::map<std::string, std::string> small_files_;
  train::Settings settings_;
  train::ResumePoint resume_;
  std::string base_;  ///< fill_base()
  std::shared_ptr<const io::HeldFolder> held_;
  std::optional<EngineOnRanks> on_ranks_;
};

}  // namespace kozero::run
