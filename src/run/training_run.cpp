// SPDX-FileCopyrightText: The KoZeRO authors
// SPDX-License-Identifier: Apache-2.0
// training_run.cpp: a training run in order: the start; steps with metrics, evaluations and checkpoints; the weights
// file, the closing evaluation and a sample.
#include <fmt/format.h>
#include <chrono>
#include <new>
#include <optional>
#include <string>

#include <kozero/core/device.hpp>
#include <kozero/core/error.hpp>
#include <kozero/core/events.hpp>
#include <kozero/data/corpus_epoch.hpp>
#include <kozero/distributed/agreement.hpp>
#include <kozero/distributed/communicator.hpp>
#include <kozero/run/start_checks.hpp>
#include <kozero/run/train.hpp>
#include <kozero/train/checkpoint.hpp>
#include <kozero/train/run_files.hpp>
#include "io/checkpoint/checkpoint.hpp"
#include "io/posix/file.hpp"
#include "io/posix/system_resources.hpp"
#include "io/run/tensorboard.hpp"
#include "src/run/run_control.hpp"
#include "src/run/run_log.hpp"
#include "src/run/run_start.hpp"
#include "src/run/saving.hpp"
#include "src/run/timeline.hpp"

namespace kozero::run {
namespace {

using Clock = std::chrono::steady_clock;

double seconds_since(Clock::time_point start) { return std::chrono::duration<double>(Clock::now() - start).count(); }

/// The event file of TensorBoard. Training goes on without it if it cannot be written.
class TensorBoard {
 public:
  /// `folder`: the run's, or "" to write nothing.
  TensorBoard(const std::string& folder, std::int64_t first_step, io::Log& log) : log_(log) {
    if (folder.empty()) return;
    attempt([&] { file_.emplace(folder + "/" + io::kTensorBoardFolder, first_step); });
  }
  void write(const io::StepMetrics& row) {
    if (file_) attempt([&] { file_->write(row); });
  }

 private:
  template <class Action>
  void attempt(const Action& action) {
    try {
      action();
    } catch (const Error& problem) {
      log_.say(fmt::format("warning      log.tensorboard: {}; training goes on without it", problem.what()));
      file_.reset();
    }
  }

  io::Log& log_;
  std::optional<io::TensorBoardFile> file_;
};

class TrainingRun {
 public:
  TrainingRun(Session& session, const StartedAs& started)
      : start_(session, started),
        saving_(session, engine_, start_.log(), start_.held_folder()),
        run_log_(start_),
        timeline_(deck_.log, *start_.on_ranks().mesh().all, start_.control_comm(), start_.held_folder(),
                  started.profile) {}

  /// Of the run's epoch, with data.grow.
  [[nodiscard]] const std::string& corpus() const { return start_.data().corpus; }
  /// Throws Error after reporting it, since the destruction of members may wait for a disk or a rank.
  RunSummary execute();

 private:
  void run_to_the_end();
  void train_all_steps();
  [[nodiscard]] bool is_last_part() const;
  /// The end of a lesson, or of an epoch of a corpus that grows, that another one follows.
  void end_part();
  /// After a stop signal, or within a step: saves the step's checkpoint, or the weights, and nothing else.
  [[noreturn]] void stop_at_once();
  /// The ranks agreed to stop within a step: saves the state of the step before, unless it is saved.
  void save_before_interruption(const train::StepResult& interrupted);
  /// The error of a run that stops before its last step in good order: what it saved, and the command that continues
  /// it.
  [[nodiscard]] Error stopped();
  /// "its checkpoint is run/step_000000012": the state for a resume. Called after the last save.
  [[nodiscard]] std::string saved_text() const;
  /// metrics.jsonl cannot be written: saves what can be saved. Throws the reason on all ranks.
  [[noreturn]] void stop_without_metrics();
  void save_weights();

  RunStart start_;
  const io::Deck& deck_ = start_.deck();
  const train::Settings& settings_ = start_.settings();
  train::Engine& engine_ = start_.engine();
  RunControl& run_ = start_.control();
  io::Log& log_ = start_.log();
  Saving saving_;
  RunLog run_log_;
  Timeline timeline_;
  bool is_saved_already_ = false;  ///< an interruption's checkpoint existed, e.g. the resume point
};

RunSummary TrainingRun::execute() {
  try {
    run_to_the_end();
    return run_log_.summary();
  } catch (const Error& error) {
    // The error of this rank alone ends the process in fail(). A dead disk or GPU must not delay its report.
    if (kHostIsDevice && error.failure() != Failure::write) timeline_.finish();
    run_.fail(error);
    timeline_.finish();
    throw;
  } catch (const std::bad_alloc&) {
    run_.fail(Error(Failure::internal, io::memory_exhausted()));
    throw;
  } catch (const std::exception& error) {
    run_.fail(Error(Failure::internal, error.what()));
    throw;
  }
}

void TrainingRun::run_to_the_end() {
  run_log_.say_banner();
  start_.fill_state();
  run_log_.begin_steps();
  start_.on_ranks().mesh().counts->reset();
  run_.begin_steps();
  train_all_steps();
  if (run_.stopped_by_signal() || run_.interrupted()) stop_at_once();
  run_log_.say_memory();
  if (run_.reason() == stop_reason::kNone && !is_last_part()) return end_part();
  save_weights();
  saving_.finish();
  run_.end_steps();
  run_log_.say_evaluation();
  engine_.require_unchanged_disk();  // the evaluation reads it
  run_.end_outputs();
  log_.say(fmt::format("output in {}: {}, {}, {}, {}", start_.folder(), train::kWeightsFile, train::kDeckFile,
                       io::kMetricsFile, io::kLogFile));
  if (run_.reason() != stop_reason::kNone) throw stopped();
  run_.finish();
  run_.complete();
  run_log_.say_sample();
}

bool TrainingRun::is_last_part() const {
  if (deck_.data.grow) return settings_.steps >= deck_.run.steps;
  return deck_.whole == nullptr || deck_.lesson + 1 == deck_.run.curriculum.size();
}

void TrainingRun::end_part() {
  saving_.finish();
  if (saving_.saved_step() != run_log_.step()) {
    throw Error(Failure::write,
                fmt::format("{}: the checkpoint of step {}, with which the next part of the run begins, could not be "
                            "saved; make room and resume",
                            start_.folder(), run_log_.step()),
                Error::Seen::by_all_ranks);
  }
  run_.end_steps();
  run_log_.say_evaluation();
  engine_.require_unchanged_disk();
  run_.end_outputs();
  const std::string part = deck_.data.grow
                               ? fmt::format("epoch {}", settings_.samples.epoch)
                               : fmt::format("lesson {} of {}", deck_.lesson + 1, deck_.run.curriculum.size());
  log_.say(fmt::format("{} is complete: {}", part, saved_text()));
  run_.finish();
}

void TrainingRun::train_all_steps() {
  const Phase phase("training");
  const data::SampleSource& source = *start_.data().train;
  const data::Sampler sampler =
      data::sampler_of(start_.data(), settings_.order_seed, settings_.batch.global_batch, settings_.samples);
  engine_.train_on(sampler, source, settings_.step);
  std::optional<io::MetricsFile> metrics = start_.open_metrics();
  TensorBoard board(deck_.log.tensorboard && metrics ? start_.folder() : "", start_.step() + 1, log_);
  const std::int64_t first = start_.step() + 1;
  if (first > settings_.steps) {
    log_.say(fmt::format("note         nothing to train: step {} of {} is done; give more run.steps", first - 1,
                         settings_.steps));
  }
  io::Progress progress(log_, settings_.steps, deck_.log.every);
  for (std::int64_t step = first; step <= settings_.steps && run_.reason() == stop_reason::kNone; ++step) {
    start_.data_check().look();
    start_.on_ranks().mesh().counts->reset();
    engine_.phase_seconds().clear();
    timeline_.begin(step, step - first + 1);
    const auto step_start = Clock::now();
    const train::StepResult result = engine_.step(step, run_.request());
    if (result.interrupted_after > 0) {
      save_before_interruption(result);
      break;
    }
    const double seconds = seconds_since(step_start);
    io::StepMetrics row = run_log_.count(result, seconds, sampler.epochs_after(step), saving_.take_stall());
    progress.update({step, result.loss, row.tokens_per_s, seconds, io::resident_memory().current, row.loss_scale});
    if (result.skipped) run_log_.say_skipped(result, engine_.loss_scaler().scale());
    // A run whose time ends within its last step is complete.
    const bool is_complete = step == settings_.steps && result.request == stop_reason::kTimeOver;
    run_.count_step(step, is_complete ? stop_reason::kNone : result.request);
    saving_.read_clock();
    const bool is_validated = run_log_.evaluation_due(step, saving_.due(step, step == settings_.steps));
    if (run_.reason() == stop_reason::kNone && is_validated) run_log_.evaluate_after(row);
    if (metrics) run_.write(*metrics, row);
    board.write(row);
    saving_.look();
    const bool is_last = step == settings_.steps || run_.reason() != stop_reason::kNone;
    const bool has_folder = run_.reason() != stop_reason::kFolderLost;
    if (has_folder && saving_.due(step, is_last)) {
      start_.identify_data();
      saving_.save(start_.record_after(step, run_log_.tokens(), engine_.loss_scaler(), row.val_loss),
                   start_.small_files(), result.skips_in_a_row == 0);
    }
    timeline_.end(step);
  }
  timeline_.finish();
  start_.data_check().look(std::chrono::seconds(2));
  if (!start_.data_check().done()) log_.say("note         the run ended before all its token shards were checked");
  if (run_.lost_metrics()) stop_without_metrics();
  run_.require_outputs();
  run_log_.end_steps();
}

void TrainingRun::stop_at_once() {
  if (deck_.checkpoint.every == 0 && run_log_.step() > 0) save_weights();
  saving_.finish();
  run_.require_outputs();
  throw stopped();
}

void TrainingRun::save_before_interruption(const train::StepResult& interrupted) {
  run_.count_interruption(fmt::format("{} of {} micro-steps of step {}", interrupted.interrupted_after,
                                      interrupted.micro_steps, interrupted.step),
                          interrupted.request);
  if (deck_.checkpoint.every == 0 || run_log_.step() == 0 || run_.reason() == stop_reason::kFolderLost) return;
  saving_.finish();  // of this step, perhaps
  const std::string checkpoint = io::checkpoint_folder(start_.folder(), run_log_.step());
  const std::string there = distributed::from_first_rank(
      start_.control_comm(), [&] { return std::string(io::is_folder(checkpoint) ? "there" : ""); });
  is_saved_already_ = there == "there";
  if (is_saved_already_) return;
  start_.identify_data();
  saving_.save(start_.record_after(run_log_.step(), run_log_.tokens(), engine_.loss_scaler()), start_.small_files(),
               true);
}

std::string TrainingRun::saved_text() const {
  if (run_log_.step() == 0) return "no step is complete, so nothing is saved";
  if (deck_.checkpoint.every == 0) {
    return "its weights are in " + start_.path_of(train::kWeightsFile) +
           ", but without checkpoint.every not the optimizer's state";
  }
  return is_saved_already_ || saving_.saved_step() == run_log_.step()
             ? "its checkpoint is " + io::checkpoint_folder(start_.folder(), run_log_.step())
             : "its checkpoint could not be saved, older ones are as they were";
}

Error TrainingRun::stopped() {
  const bool has_weights_only = deck_.checkpoint.every == 0 && run_log_.step() > 0;
  return run_.stopped(settings_.steps, saved_text(), has_weights_only ? start_.path_of(train::kWeightsFile) : "auto");
}

void TrainingRun::stop_without_metrics() {
  std::string saved;
  try {
    if (deck_.checkpoint.every == 0) save_weights();
    saving_.finish();
    saved = saved_text();
  } catch (const Error& problem) {  // the same disk may be full
    if (problem.failure() != Failure::write || !problem.seen_by_all_ranks()) throw;
    saved = problem.what();
  }
  run_.require_outputs(saved);
  throw Error(Failure::internal, "metrics are lost on no rank", Error::Seen::by_all_ranks);
}

void TrainingRun::save_weights() {
  const Phase phase("saving weights");
  const io::WeightsDescription description{train::model_json(settings_.model), run_log_.step(), run_log_.tokens(),
                                           train::ties_of(engine_), start_.base()};
  const auto comm = distributed::make_control_communicator(start_.session().environment().world(), deck_.comm.timeout_s,
                                                           {.io_timeout_s = deck_.checkpoint.io_timeout_s});
  train::save_weights(*start_.held_folder(), engine_, *comm, description);
}

/// The deck of the run's next part.
void go_on_in(io::Deck& deck, const std::string& folder) {
  deck.run.dir = folder;
  deck.checkpoint.resume = "auto";
}

/// Refuses a lesson that does not fit, before the first one takes hours.
void check_all_lessons(Session& session, const io::Deck& whole) {
  for (std::size_t lesson = 1; lesson < whole.run.curriculum.size(); ++lesson) {
    session.use_deck(io::deck_of_lesson(whole, lesson));
    const auto vocab = distributed::agreed(session.control(), [&] { return data::vocab_of(session.deck()); });
    static_cast<void>(check_before_data(session, vocab));
  }
}

RunSummary train_lessons(Session& session, const StartedAs& started) {
  io::Deck whole = session.deck();
  const int ranks = session.control().size();
  check_all_lessons(session, whole);
  RunSummary summary;
  const std::int64_t step = distributed::broadcast_value(
      session.control(), session.is_first_rank() ? train::recorded_position(whole).step : std::int64_t{0});
  for (std::size_t lesson = train::lesson_after(whole, ranks, step); lesson < whole.run.curriculum.size();) {
    session.use_deck(io::deck_of_lesson(whole, lesson));
    try {
      summary = TrainingRun(session, started).execute();
      go_on_in(whole, summary.folder);
      ++lesson;
    } catch (const OtherPart& other) {
      lesson = train::lesson_after(whole, ranks, other.step);
    }
  }
  return summary;
}

RunSummary train_epochs(Session& session, const StartedAs& started) {
  io::Deck deck = session.deck();
  deck.corpus = distributed::from_first_rank(session.control(), [&] { return train::recorded_position(deck).corpus; });
  while (true) {
    session.use_deck(deck);
    try {
      TrainingRun run(session, started);
      const RunSummary summary = run.execute();
      if (summary.steps >= deck.run.steps) return summary;
      go_on_in(deck, summary.folder);
      deck.corpus = text_of(epoch_after(data::corpus_epoch_of(run.corpus()), summary.steps));
    } catch (const OtherPart& other) {
      if (other.corpus == deck.corpus) {
        throw Error(Failure::input,
                    "data.grow: the files of the checkpoint's epoch cannot be told from those that are there",
                    Error::Seen::by_all_ranks);
      }
      deck.corpus = other.corpus;
    }
  }
}

}  // namespace

RunSummary train(Session& session, const StartedAs& started) {
  const io::Deck& deck = session.deck();
  if (!deck.run.curriculum.empty()) return train_lessons(session, started);
  return deck.data.grow ? train_epochs(session, started) : TrainingRun(session, started).execute();
}

}  // namespace kozero::run
