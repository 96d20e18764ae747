// SPDX-FileCopyrightText: The KoZeRO authors
// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>
#include <algorithm>
#include <cmath>
#include <filesystem>
#include <new>
#include <numeric>

#include <kozero/core/device.hpp>
#include <kozero/core/error.hpp>
#include <kozero/core/timing.hpp>
#include <kozero/dist/communicator.hpp>
#include <kozero/run/device_choice.hpp>
#include <kozero/run/provenance.hpp>
#include <kozero/run/run_log.hpp>
#include <kozero/run/session.hpp>
#include <kozero/run/start_checks.hpp>
#include <kozero/run/weights_source.hpp>
#include <kozero/train/checkpoint.hpp>
#include <kozero/train/generator.hpp>
#include <kozero/train/run_files.hpp>
#include "io/checkpoint/checkpoint.hpp"
#include "io/posix/file.hpp"
#include "io/posix/readable.hpp"
#include "io/posix/system_resources.hpp"
#include "io/run/run_folder.hpp"
#include "io/run/run_output.hpp"
#include "src/run/training_run.hpp"

namespace kozero::run {
namespace {

using Clock = std::chrono::steady_clock;

constexpr const char* kTuningFile = "tuning.toml";  // what run.tuning named, beside the deck
constexpr const char* kMetricsFile = "metrics.jsonl";

double seconds_since(Clock::time_point start) { return std::chrono::duration<double>(Clock::now() - start).count(); }

}  // namespace

TrainingRun::TrainingRun(Session& session, const StartedAs& started)
    : session_(session),
      deck_(session.deck()),
      control_(session.control()),
      log_(session.is_first_rank() ? io::Log::on_standard_output() : io::Log()),
      run_(session, log_, started),
      provenance_(run_.provenance()) {
  const auto vocab = dist::agreed(control_, [&] { return train::vocab_of(deck_); });
  const auto seq = dist::agreed(control_, [&] { return train::model_config(deck_, vocab).seq; });
  start_notes_ = check_before_data(session, vocab);
  data_ = train::open_data(deck_, seq, control_);
  settings_ = dist::agreed(control_, [&] {
    train::require_whole_sample(data_, deck_, seq);
    train::require_validation_data(deck_, data_);
    return train::settings_of(deck_, control_.size(), data_.vocab, data_.train->num_samples());
  });
  data_check_.emplace(std::vector{data_.train_shards, data_.validation_shards}, control_);
  if (started.verify_data || deck_.data.strict) data_check_->finish(control_);
  data_identity_ = data_check_->identity(control_);
  settings_.staged = settings_.staged && can_save_beside(session.environment());
  resume_ = train::find_resume_point(deck_, record_after(0, settings_.step.loss_scaler), control_);
  if (const std::string other = other_data(); deck_.data.strict && !other.empty()) {
    throw Error(Failure::deck, other + "; refused by data.strict = true", Error::Seen::by_all_ranks);
  }
  if (!data_check_->done()) data_check_->start();
  on_ranks_.emplace(session, settings_, data_.vocab, [&] {  // a refusal leaves no folder
    create_folder();
    if (deck_.zero.offload_dir.empty()) settings_.offload.folder = folder_;
  });
  small_files_ = dist::agreed(control_, [&] { return small_files(); });
  held_ = std::make_shared<io::HeldFolder>(folder_, run_.lock());
  saving_.emplace(session, engine(), log_, held_);
  validation_.emplace(deck_, settings_, engine(), data_);
  const double gpus = static_cast<double>(control_.size()) / ranks_a_gpu(session);
  peak_flops_ = gpus * published_peak(device_name(), settings_.precision != Precision::f32);
}

void TrainingRun::create_folder() {
  folder_ =
      dist::agreed(control_, [&] { return control_.rank() == 0 ? run_.make_folder(resume_.folder) : resume_.folder; });
  folder_ = control_.broadcast_control(folder_);
  dist::agreed(control_, [&] {
    if (control_.rank() != 0) return;
    run_.lock()->require();
    if (!resume_.folder.empty() && resume_.source.empty()) kept_ = set_aside_run_before();
    log_.record_in(path_of(io::kLogFile));
    if (!resume_.folder.empty()) continue_folder();
    for (const auto& line : lines_of(provenance_)) log_.note(line);
    if (const std::string note = note_on_other_run(); !note.empty()) log_.say("note         " + note);
    io::write_resolved(train::resolved_deck(deck_, settings_, folder_), path_of(train::kDeckFile),
                       lines_of(provenance_));
    std::filesystem::remove(path_of(kTuningFile));
    if (!session_.tuning().empty()) io::write_whole_file(path_of(kTuningFile), session_.tuning());
    if (data_.tokenizer != nullptr) data_.tokenizer->save(path_of(data_.tokenizer->file_name()));
  });
  resume_.state_file = control_.broadcast_control(resume_.state_file);
  summary_.folder = folder_;
  run_.enter(folder_, resume_.source.empty() ? 0 : resume_.record.step);
}

std::string TrainingRun::note_on_other_run() const {
  const std::string named = io::without_trailing_slash(deck_.run.dir);
  if (folder_ == named || !folder_.starts_with(named + "-")) return "";
  const std::int64_t number = std::stoll(folder_.substr(named.size() + 1));
  const std::string other = number == 2 ? named : fmt::format("{}-{}", named, number - 1);
  const io::RunStatus status = io::status_of_run(other);
  if (status.state.empty()) return fmt::format("{} is not empty; this run writes {}", other, folder_);
  const bool is_finished = status.state == "finished";
  const std::string auto_resume = "checkpoint.resume=auto" + (other == named ? "" : " run.dir=" + other);
  std::string advice;
  if (!train::newest_checkpoint(other).empty()) {
    advice = auto_resume + (is_finished ? " with more run.steps continues it; " : " continues it; ");
  } else if (io::is_there(other + "/" + train::kWeightsFile)) {
    advice = fmt::format("it has no checkpoints, model.init={} begins with its weights; ", other);
  }
  const bool repeats = deck_.checkpoint.resume == "auto";  // the same command, in a loop of a batch system
  const std::string state = status.state == "running" ? "is at work, or was killed," : "was " + status.state;
  return fmt::format("{} {} at step {}; {}this run writes {}{}", other, state, status.step, advice, folder_,
                     repeats ? "; run.dir=" + folder_ + " continues that one" : "");
}

std::string TrainingRun::set_aside_run_before() const {
  std::string kept;
  for (const char* file : {io::kLogFile, kMetricsFile, train::kDeckFile}) {
    std::error_code absent;
    if (std::filesystem::file_size(path_of(file), absent) == 0 || absent) continue;
    const std::filesystem::path aside = io::set_aside(path_of(file));
    kept += (kept.empty() ? "" : ", ") + aside.filename().string();
  }
  return kept;
}

std::string TrainingRun::other_data() const {
  const std::string differs = resume_.source.empty() ? "" : train::difference(resume_.record.data, data_identity_);
  return differs.empty() ? ""
                         : fmt::format("the training data are others than those of {}: {}", resume_.source, differs);
}

void TrainingRun::identify_data() {
  const bool was_said = !other_data().empty();
  data_identity_ = data_check_->identity(control_);
  if (const std::string other = other_data(); !was_said && !other.empty()) log_.say("note         " + other);
}

void TrainingRun::continue_folder() {
  if (!resume_.source.empty()) log_.note("");
  io::prune_checkpoints(folder_, 0);
  for (const auto& name : io::set_aside_after(folder_, resume_.record.step, resume_.source)) {
    log_.say("set aside    " + name);
  }
  const std::string named = io::name_by_step(folder_, resume_.source, resume_.record.step);
  if (named == resume_.source) return;
  log_.say(fmt::format("note         {}: its manifest says step {}; it is called {} now", resume_.source,
                       resume_.record.step, named));
  resume_.source = named;
  resume_.state_file = named + "/" + io::kStateFile;
}

io::CheckpointRecord TrainingRun::record_after(std::int64_t step, const train::LossScaler& loss_scaler,
                                               std::optional<double> validation_loss) const {
  io::CheckpointRecord record = train::record_of(deck_, settings_, data_, folder_);
  if (on_ranks_) record.exactness = train::exactness_of(settings_, *on_ranks_->mesh().all);
  record.step = step;
  record.tokens = tokens_;
  record.data = data_identity_;
  record.loss_scale = loss_scaler.state();
  record.tuning = session_.tuning().empty() ? "" : io::xxh3_128(session_.tuning());
  record.validation_loss = validation_loss;
  record.provenance = json_of(provenance_);
  return record;
}

RunSummary TrainingRun::execute() {
  try {
    run_to_the_end();
    return summary_;
  } catch (const Error& error) {
    run_.fail(error);
    throw;
  } catch (const std::bad_alloc&) {
    run_.fail(Error(Failure::internal, kMemoryExhausted));
    throw;
  } catch (const std::exception& error) {
    run_.fail(Error(Failure::internal, error.what()));
    throw;
  }
}

void TrainingRun::run_to_the_end() {
  say_banner();
  begin();
  on_ranks_->mesh().reset();
  run_.begin_steps();
  train_all_steps();
  if (run_.stopped_by_signal() || run_.interrupted()) stop_at_once();
  say_memory();
  save_weights();
  saving_->finish();
  run_.end_steps();
  say_evaluation();
  say_sample();
  run_.end_outputs();
  log_.say(fmt::format("output in {}: {}, {}, metrics.jsonl, log.txt", folder_, train::kWeightsFile, train::kDeckFile));
  if (run_.reason() != stop_reason::kNone) throw stopped();
  run_.finish();
}

void TrainingRun::stop_at_once() {
  if (deck_.checkpoint.every == 0 && summary_.steps > 0) save_weights();
  saving_->finish();
  run_.require_outputs();
  throw stopped();
}

void TrainingRun::save_before_interruption(const train::StepResult& interrupted) {
  run_.count_interruption(fmt::format("{} of {} micro-steps of step {}", interrupted.interrupted_after,
                                      interrupted.micro_steps, interrupted.step),
                          interrupted.request);
  if (deck_.checkpoint.every == 0 || summary_.steps == 0 || run_.reason() == stop_reason::kFolderLost) return;
  saving_->finish();  // of this step, perhaps
  const std::string checkpoint = io::checkpoint_folder(folder_, summary_.steps);
  is_saved_already_ =
      dist::from_first_rank(control_, [&] { return std::string(io::is_folder(checkpoint) ? "there" : ""); }) == "there";
  if (is_saved_already_) return;
  identify_data();
  saving_->save(record_after(summary_.steps, engine().loss_scaler()), small_files_, true);
}

std::string TrainingRun::saved_text() const {
  if (summary_.steps == 0) return "no step is complete, so nothing is saved";
  if (deck_.checkpoint.every == 0) {
    return "its weights are in " + path_of(train::kWeightsFile) +
           ", but without checkpoint.every not the optimizer's state";
  }
  return is_saved_already_ || saving_->saved_step() == summary_.steps
             ? "its checkpoint is " + io::checkpoint_folder(folder_, summary_.steps)
             : "its checkpoint could not be saved, older ones are as they were";
}

Error TrainingRun::stopped() {
  const bool has_weights_only = deck_.checkpoint.every == 0 && summary_.steps > 0;
  return run_.stopped(settings_.steps, saved_text(), has_weights_only ? path_of(train::kWeightsFile) : "auto");
}

void TrainingRun::stop_without_metrics() {
  std::string saved;
  try {
    if (deck_.checkpoint.every == 0) save_weights();
    saving_->finish();
    saved = saved_text();
  } catch (const Error& problem) {  // the same disk may be full for it too
    if (problem.failure() != Failure::write || !problem.seen_by_all_ranks()) throw;
    saved = problem.what();
  }
  run_.require_outputs(saved);
  throw Error(Failure::internal, "metrics are lost on no rank", Error::Seen::by_all_ranks);
}

std::vector<std::string> TrainingRun::load_resume_point() {
  std::vector<std::string> absent;
  train::read_newest(
      control_, deck_.checkpoint.resume, [&] { return resume_.source; },
      [&] { absent = train::load_state(resume_.state_file, engine(), control_); },
      [&] { resume_ = train::find_resume_point(deck_, record_after(0, settings_.step.loss_scaler), control_); });
  return absent;
}

void TrainingRun::begin() {
  for (const auto& reason : resume_.skipped) log_.say("skipped      " + reason);
  if (resume_.source.empty()) {
    if (!resume_.folder.empty()) {
      log_.say("resume       no complete checkpoint in " + folder_ + ": from the beginning" +
               (kept_.empty() ? "" : "; the run before is kept as " + kept_));
    }
    const std::string line = begin_weights(deck_, engine(), control_);
    if (!line.empty()) log_.say(line);
    return;
  }
  if (deck_.model.init != train::kRandom) log_.say("note         model.init is not read: checkpoint.resume wins");
  const auto absent = load_resume_point();
  const io::CheckpointRecord& saved = resume_.record;
  summary_.steps = saved.step;
  tokens_ = saved.tokens;
  settings_.step.loss_scaler.restore(saved.loss_scale);
  settings_.step.optimizer_start = absent.empty() ? saved.optimizer_start : saved.step;
  log_.say(fmt::format("resume       after step {}, {} tokens, from {}", saved.step, saved.tokens, resume_.source));
  if (!absent.empty())
    log_.say("warning      weights only: no " + absent.front() + " there, the optimizer's state begins anew");
  const auto changes = train::changes_since(saved, record_after(0, settings_.step.loss_scaler));
  for (const auto& change : changes) log_.say("note         " + change);
  const std::string other = other_data();
  if (!other.empty()) log_.say("note         " + other);
  if (!changes.empty() || !other.empty())
    log_.say("note         from here on the bits are not those of the run before");
}

std::optional<io::MetricsFile> TrainingRun::open_metrics() {
  return dist::agreed(control_, [&]() -> std::optional<io::MetricsFile> {
    if (control_.rank() != 0) return std::nullopt;
    run_.lock()->require();
    if (resume_.folder.empty()) return io::MetricsFile(path_of(kMetricsFile));
    io::MetricsFile metrics(path_of(kMetricsFile), resume_.record.step);
    if (!metrics.note().empty()) log_.say("warning      " + metrics.note());
    return metrics;
  });
}

void TrainingRun::train_all_steps() {
  const Phase phase("training");
  const train::Sampler sampler(settings_.seed, data_.train->num_samples(), settings_.batch.global_batch);
  engine().train_on(sampler, *data_.train, settings_.step);
  std::optional<io::MetricsFile> metrics = open_metrics();
  const std::int64_t first = resume_.record.step + 1;
  if (first > settings_.steps) {
    log_.say(fmt::format("note         nothing to train: step {} of {} is done; give more run.steps", first - 1,
                         settings_.steps));
  }
  io::Progress progress(log_, settings_.steps, deck_.log.every);
  for (std::int64_t step = first; step <= settings_.steps && run_.reason() == stop_reason::kNone; ++step) {
    data_check_->look();
    on_ranks_->mesh().reset();
    engine().timeline().clear();
    const auto step_start = Clock::now();
    const train::StepResult result = engine().step(step, run_.request());
    if (result.interrupted_after > 0) {
      save_before_interruption(result);
      break;
    }
    const double seconds = seconds_since(step_start);
    tokens_ += result.tokens;
    if (step == first) summary_.first_loss = result.loss;
    if (step > first || settings_.steps == first) tokens_per_s_.add(static_cast<double>(result.tokens) / seconds);
    summary_.last_loss = result.loss;
    summary_.steps = step;
    io::StepMetrics row = metrics_of(result, seconds, sampler.epochs_after(step));
    progress.update({step, result.loss, row.tokens_per_s, seconds, io::resident_memory().current, row.loss_scale});
    if (result.skipped) say_skipped(result, engine().loss_scaler().scale());
    summary_.skipped_steps += result.skipped ? 1 : 0;
    // A run whose time ends within its last step is complete.
    const bool is_complete = step == settings_.steps && result.request == stop_reason::kTimeOver;
    run_.count_step(step, is_complete ? stop_reason::kNone : result.request);
    last_evaluation_.reset();
    const bool is_validated = validation_->due(step, saving_->due(step, step == settings_.steps));
    if (run_.reason() == stop_reason::kNone && is_validated) row.val_loss = evaluate_after(step);
    if (metrics) run_.write(*metrics, row);
    saving_->look();
    const bool is_last = step == settings_.steps || run_.reason() != stop_reason::kNone;
    const bool has_folder = run_.reason() != stop_reason::kFolderLost;
    if (!has_folder || !saving_->due(step, is_last)) continue;
    identify_data();
    saving_->save(record_after(step, engine().loss_scaler(), row.val_loss), small_files_, result.skips_in_a_row == 0);
  }
  data_check_->look(std::chrono::seconds(2));
  if (!data_check_->done()) log_.say("note         the run ended before all its token shards were checked");
  if (run_.lost_metrics()) stop_without_metrics();
  run_.require_outputs();
  summary_.median_tokens_per_s = median(tokens_per_s_.values());
}

std::map<std::string, std::string> TrainingRun::small_files() const {
  std::map<std::string, std::string> texts;
  if (control_.rank() != 0) return texts;
  texts[train::kDeckFile] = io::resolved_text(train::resolved_deck(deck_, settings_, folder_));
  if (!session_.tuning().empty()) texts[kTuningFile] = session_.tuning();
  if (data_.tokenizer == nullptr) return texts;
  const std::string file = data_.tokenizer->file_name();
  texts[file] = io::read_whole_file(path_of(file), std::int64_t{1} << 30);
  return texts;
}

void TrainingRun::save_weights() {
  const Phase phase("saving weights");
  const io::WeightsDescription description{train::model_json(settings_.model), summary_.steps, tokens_,
                                           train::ties_of(engine())};
  const auto comm = dist::make_control_communicator(session_.environment().world(), deck_.comm.timeout_s,
                                                    {.io_timeout_s = deck_.checkpoint.io_timeout_s});
  train::save_weights(*held_, engine(), *comm, description);
}

RunSummary train(Session& session, const StartedAs& started) { return TrainingRun(session, started).execute(); }

}  // namespace kozero::run
