// SPDX-FileCopyrightText: The KoZeRO authors
// SPDX-License-Identifier: Apache-2.0
// run_start.cpp: data, settings, memory, the run's folder, and the weights and optimizer state that a run begins with.
#include <fmt/format.h>
#include <filesystem>
#include <utility>

#include <kozero/core/error.hpp>
#include <kozero/data/corpus_epoch.hpp>
#include <kozero/data/prepare.hpp>
#include <kozero/data/token_cache.hpp>
#include <kozero/distributed/agreement.hpp>
#include <kozero/distributed/communicator.hpp>
#include <kozero/run/start_checks.hpp>
#include <kozero/run/weights_source.hpp>
#include <kozero/train/checkpoint.hpp>
#include <kozero/train/evaluation.hpp>
#include "io/checkpoint/checkpoint.hpp"
#include "io/posix/file.hpp"
#include "io/run/metrics.hpp"
#include "io/run/run_folder.hpp"
#include "src/run/run_start.hpp"
#include "src/run/saving.hpp"

namespace kozero::run {
namespace {

/// "wte.weight, wpe.weight, h.0.ln_1.weight and 9 more tensors"
std::string first_of(const std::vector<std::string>& tensors) {
  constexpr std::size_t kMost = 3;
  std::string text;
  for (std::size_t i = 0; i < std::min(kMost, tensors.size()); ++i) text += (i == 0 ? "" : ", ") + tensors[i];
  return tensors.size() <= kMost ? text : fmt::format("{} and {} more tensors", text, tensors.size() - kMost);
}

}  // namespace

RunStart::RunStart(Session& session, const StartedAs& started)
    : session_(session),
      deck_(session.deck()),
      control_(session.control()),
      log_(session.is_first_rank() ? io::Log::on_standard_output() : io::Log()),
      run_(session, log_, started),
      provenance_(run_.provenance()) {
  const auto vocab = distributed::agreed(control_, [&] { return data::vocab_of(deck_); });
  const auto seq =
      distributed::agreed(control_, [&] { return train::seq_of(deck_, train::model_config(deck_, vocab)); });
  notes_ = check_before_data(session, vocab);
  data_ = data::open_data(deck_, seq, control_);
  settings_ = distributed::agreed(control_, [&] {
    data::require_whole_sample(data_, deck_, seq);
    train::require_validation_data(deck_, data_);
    auto settings = train::settings_of(deck_, control_.size(), data_.vocab, data_.train->num_samples());
    const data::Sampler sampler =
        data::sampler_of(data_, settings.order_seed, settings.batch.global_batch, settings.samples);
    data::require_passes(data_, deck_, sampler, settings.steps);
    data_.description += data::mixture_text(data_, sampler, settings.samples.steps_before, settings.steps);
    for (auto& note : notes_on_steps(settings, deck_, sampler, session.environment()))
      notes_.push_back(std::move(note));
    if (data_.validation == nullptr && deck_.train.eval_every > 0) {
      notes_.push_back(
          fmt::format("note         train.eval_every = {}: nothing to validate, since data.val_fraction = {} of the "
                      "data is no sequence",
                      deck_.train.eval_every, deck_.data.val_fraction));
    }
    return settings;
  });
  data_check_.emplace(std::vector{data_.train_shards, data_.validation_shards}, control_);
  if (started.verify_data || deck_.data.strict) {
    data_check_->finish(control_);
    distributed::agreed(control_, [&] {
      if (control_.rank() == 0 && !data_.tokens.empty()) data::require_same_sources(data_.tokens);
    });
  }
  data_identity_ = data::identity_of(data_, *data_check_, control_);
  settings_.staged = settings_.staged && can_save_beside(session.environment());
  resume_ = find_resume_point();
  require_lesson();
  require_epoch();
  if (const std::string other = other_data(); deck_.data.strict && !other.empty()) {
    throw Error(Failure::deck, other + "; refused by data.strict = true", Error::Seen::by_all_ranks);
  }
  if (!data_check_->done()) data_check_->start();
  on_ranks_.emplace(session, settings_, data_.vocab, [&] {  // an error leaves no folder
    create_folder();
    if (deck_.zero.offload_dir.empty()) settings_.offload.folder = folder_;
  });
  small_files_ = distributed::agreed(control_, [&] { return texts_of_small_files(); });
  held_ = std::make_shared<io::HeldFolder>(folder_, run_.lock());
}

void RunStart::require_lesson() const {
  if (deck_.whole == nullptr) return;
  const bool is_last = deck_.lesson + 1 == deck_.run.curriculum.size();
  const std::int64_t step = resume_.record.step;
  const std::int64_t begin = settings_.step.steps_before;
  if (step < begin || (!is_last && step >= settings_.steps)) throw OtherPart{step};
  if (resume_.source.empty() || resume_.record.steps_before == begin || step == begin) return;
  throw Error(
      Failure::deck,
      fmt::format("{}: there lesson {} begins behind step {}, here behind step {}; give the lessons before it the "
                  "lengths and batches that they had",
                  resume_.source, deck_.lesson + 1, resume_.record.steps_before, begin),
      Error::Seen::by_all_ranks);
}

void RunStart::require_epoch() const {
  if (!deck_.data.grow || resume_.source.empty()) return;
  const io::CheckpointRecord& saved = resume_.record;
  if (saved.corpus.empty()) {
    throw Error(Failure::deck,
                resume_.source +
                    ": it has no record of the files of its epoch, which data.grow = true needs; "
                    "accepted is data.grow=false",
                Error::Seen::by_all_ranks);
  }
  const bool is_same = saved.corpus == data_.corpus;
  const bool begins = !deck_.corpus.empty() && saved.step == settings_.samples.steps_before;
  if (!is_same && !begins) throw OtherPart{saved.step, saved.corpus};
  if (is_same && saved.step >= settings_.steps && settings_.steps < deck_.run.steps) {
    throw OtherPart{saved.step, text_of(epoch_after(data::corpus_epoch_of(saved.corpus), saved.step))};
  }
}

void RunStart::create_folder() {
  folder_ = distributed::agreed(
      control_, [&] { return control_.rank() == 0 ? run_.make_folder(resume_.folder) : resume_.folder; });
  folder_ = control_.broadcast_control(folder_);
  require_one_folder(folder_, control_);
  distributed::agreed(control_, [&] {
    if (control_.rank() != 0) return;
    run_.lock()->require();
    if (!resume_.folder.empty() && resume_.source.empty()) kept_ = set_aside_run_before();
    log_.record_in(path_of(io::kLogFile));
    if (!resume_.folder.empty()) continue_folder();
    for (const auto& line : lines_of(provenance_)) log_.note(line);
    if (const std::string note = note_on_other_run(); !note.empty()) log_.say("note         " + note);
    io::write_resolved(train::resolved_deck(deck_, settings_, folder_), path_of(train::kDeckFile),
                       lines_of(provenance_));
    std::filesystem::remove(path_of(io::kTuningFile));
    if (!session_.tuning().empty()) io::write_whole_file(path_of(io::kTuningFile), session_.tuning());
    if (data_.tokenizer != nullptr) data_.tokenizer->save(path_of(data_.tokenizer->file_name()));
  });
  resume_.state_file = control_.broadcast_control(resume_.state_file);
  run_.enter(folder_, resume_.source.empty() ? 0 : resume_.record.step);
}

std::string RunStart::note_on_other_run() const {
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

std::string RunStart::set_aside_run_before() const {
  std::string kept;
  for (const char* file : {io::kLogFile, io::kMetricsFile, train::kDeckFile}) {
    std::error_code absent;
    if (std::filesystem::file_size(path_of(file), absent) == 0 || absent) continue;
    const std::filesystem::path aside = io::set_aside(path_of(file));
    kept += (kept.empty() ? "" : ", ") + aside.filename().string();
  }
  return kept;
}

std::string RunStart::other_data() const {
  const bool compares = !resume_.source.empty() && resume_.record.steps_before == settings_.samples.steps_before;
  const std::string differs = compares ? data::difference(resume_.record.data, data_identity_) : "";
  return differs.empty() ? "" : fmt::format("the training data differ from those of {}: {}", resume_.source, differs);
}

void RunStart::identify_data() {
  const bool was_said = !other_data().empty();
  data_identity_ = data::identity_of(data_, *data_check_, control_);
  if (const std::string other = other_data(); !was_said && !other.empty()) log_.say("note         " + other);
}

void RunStart::continue_folder() {
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

io::CheckpointRecord RunStart::record_after(std::int64_t step, std::int64_t tokens,
                                            const train::LossScaler& loss_scaler,
                                            std::optional<double> validation_loss) const {
  io::CheckpointRecord record = train::record_of(deck_, settings_, data_, folder_);
  if (on_ranks_) record.exactness = train::exactness_of(settings_, *on_ranks_->mesh().all);
  record.step = step;
  record.tokens = tokens;
  record.base = base_;
  record.data = data_identity_;
  record.loss_scale = loss_scaler.state();
  record.tuning = session_.tuning().empty() ? "" : io::xxh3_128(session_.tuning());
  record.validation_loss = validation_loss;
  record.provenance = json_of(provenance_);
  return record;
}

train::ResumePoint RunStart::find_resume_point() const {
  return train::find_resume_point(deck_, record_after(0, 0, settings_.step.loss_scaler), control_);
}

io::AbsentState RunStart::load_resume_point() {
  io::AbsentState absent;
  train::read_newest(
      control_, deck_.checkpoint.resume, [&] { return resume_.source; },
      [&] { absent = train::load_state(resume_.state_file, engine(), control_); },
      [&] { resume_ = find_resume_point(); });
  return absent;
}

void RunStart::fill_state() {
  for (const auto& reason : resume_.skipped) log_.say("skipped      " + reason);
  base_ = fill_base(deck_, resume_.record.base, resume_.source, engine(), control_);
  if (resume_.source.empty()) {
    if (!resume_.folder.empty()) {
      log_.say("resume       no complete checkpoint in " + folder_ + ": from the beginning" +
               (kept_.empty() ? "" : "; the run before is kept as " + kept_));
    }
    const std::string line = begin_weights(deck_, engine(), control_);
    if (!line.empty()) log_.say(line);
    return;
  }
  if (deck_.model.init != train::kRandom && base_.empty())
    log_.say("note         model.init is not read: checkpoint.resume wins");
  const auto absent = load_resume_point();
  const io::CheckpointRecord& saved = resume_.record;
  settings_.step.loss_scaler.restore(saved.loss_scale);
  settings_.step.optimizer_start = absent.groups.empty() ? saved.optimizer_start : saved.step;
  log_.say(fmt::format("resume       after step {}, {} tokens, from {}", saved.step, saved.tokens, resume_.source));
  if (!absent.groups.empty()) {
    log_.say("warning      weights only: no " + absent.groups.front() + " there, the optimizer's state begins anew");
  } else if (!absent.tensors.empty()) {
    log_.say("note         frozen until now, the optimizer's state begins at zero: " + first_of(absent.tensors));
  }
  const auto changes = train::changes_since(saved, record_after(0, saved.tokens, settings_.step.loss_scaler));
  for (const auto& change : changes) log_.say("note         " + change);
  const std::string other = other_data();
  if (!other.empty()) log_.say("note         " + other);
  if (!changes.empty() || !other.empty())
    log_.say("note         from here on the bits are not those of the run before");
  for (std::size_t lesson = 0; control_.rank() == 0 && deck_.whole != nullptr && lesson < deck_.lesson; ++lesson) {
    if (data::has_tokens(io::deck_of_lesson(*deck_.whole, lesson))) continue;
    log_.say(
        fmt::format("note         the text of lesson {}, which is over, has changed, or its tokens are gone: the "
                    "run from its beginning would have other bits, or make them again",
                    lesson + 1));
  }
}

std::optional<io::MetricsFile> RunStart::open_metrics() {
  return distributed::agreed(control_, [&]() -> std::optional<io::MetricsFile> {
    if (control_.rank() != 0) return std::nullopt;
    run_.lock()->require();
    if (resume_.folder.empty()) return io::MetricsFile(path_of(io::kMetricsFile));
    io::MetricsFile metrics(path_of(io::kMetricsFile), resume_.record.step);
    if (!metrics.note().empty()) log_.say("warning      " + metrics.note());
    return metrics;
  });
}

std::map<std::string, std::string> RunStart::texts_of_small_files() const {
  std::map<std::string, std::string> texts;
  if (control_.rank() != 0) return texts;
  texts[train::kDeckFile] = io::resolved_text(train::resolved_deck(deck_, settings_, folder_));
  if (!session_.tuning().empty()) texts[io::kTuningFile] = session_.tuning();
  if (data_.tokenizer == nullptr) return texts;
  const std::string file = data_.tokenizer->file_name();
  texts[file] = io::read_whole_file(path_of(file), std::int64_t{1} << 30);
  return texts;
}

}  // namespace kozero::run
