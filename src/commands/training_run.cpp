// SPDX-FileCopyrightText: The KoZeRO authors
// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <cmath>
#include <filesystem>
#include <new>
#include <numeric>

#include <fmt/format.h>

#include <kozero/core/device.hpp>
#include <kozero/core/error.hpp>
#include <kozero/core/failure_report.hpp>
#include <kozero/core/position.hpp>
#include <kozero/dist/agreed.hpp>
#include <kozero/dist/control_communicator.hpp>
#include <kozero/io/checkpoint_folders.hpp>
#include <kozero/io/memory.hpp>
#include <kozero/io/progress.hpp>
#include <kozero/io/readable.hpp>
#include <kozero/io/run_folder.hpp>
#include <kozero/io/whole_file.hpp>
#include <kozero/train/checkpoint.hpp>
#include <kozero/train/evaluation.hpp>
#include <kozero/train/generator.hpp>
#include <kozero/train/trained_weights.hpp>

#include "banner.hpp"
#include "device_handover.hpp"
#include "initial_model.hpp"
#include "resolved_deck.hpp"
#include "start_checks.hpp"
#include "training_run.hpp"

namespace kozero::commands {
namespace {

using Clock = std::chrono::steady_clock;

constexpr const char* kTuningFile = "tuning.toml";  // what run.tuning named, beside the deck

std::string named_tuning(const std::string& hash) { return hash.empty() ? "the rule" : "the tuning " + hash; }

double seconds_since(Clock::time_point start) { return std::chrono::duration<double>(Clock::now() - start).count(); }

}  // namespace

TrainingRun::TrainingRun(Session& session, const StartedAs& started)
    : session_(session),
      deck_(session.deck()),
      control_(session.control()),
      log_(session.is_first_rank() ? io::Log::on_standard_output() : io::Log()),
      run_(session, log_, started) {
  const auto vocab = dist::agreed(control_, [&] { return train::vocab_of(deck_); });
  const auto seq = dist::agreed(control_, [&] { return train::model_config(deck_, vocab).seq; });
  start_notes_ = check_before_data(session, vocab);
  data_ = train::open_data(deck_, seq, io::without_trailing_slash(deck_.run.dir) + "-tokens", control_);
  tokenizer_ = train::identity_of(data_.tokenizer.get());
  settings_ = dist::agreed(control_, [&] {
    train::require_whole_sample(data_, deck_, seq);
    return train::settings_of(deck_, control_.size(), data_.vocab, data_.train->num_samples());
  });
  data_check_.emplace(std::vector{data_.train_shards, data_.validation_shards}, control_);
  if (started.verify_data || deck_.data.strict) data_check_->finish(control_);
  data_identity_ = data_check_->identity(control_);
  settings_.staged = settings_.staged && can_save_beside(session.environment());
  plan_ = plan::memory_plan(settings_, session_.backend(), control_.size());
  require_room(plan_, session, data_.vocab);
  resume_ = find_resume_point(deck_, record_after(0, settings_.step.loss_scaler), control_);
  if (const std::string other = other_data(); deck_.data.strict && !other.empty()) {
    throw Error(Failure::deck, other + "; refused by data.strict = true", Error::Seen::by_all_ranks);
  }
  if (!data_check_->done()) data_check_->start();
  comm_ =
      std::make_unique<dist::CountedCommunicator>(session.connect(ledger_));  // or a refusal, which leaves no folder
  create_folder();
  assembly_ = std::make_unique<train::Assembly>(settings_, *comm_, ledger_);
  small_files_ = dist::agreed(control_, [&] { return small_files(); });
  saving_.emplace(session, *assembly_, log_, folder_);
  const double gpus = static_cast<double>(control_.size()) / ranks_a_gpu(session);
  peak_flops_ = gpus * published_peak(device_name(), settings_.precision != Precision::f32);
}

void TrainingRun::create_folder() {
  folder_ = dist::agreed(control_, [&] {
    return control_.rank() == 0 ? run_.make_folder(resume_.folder) : resume_.folder;
  });
  folder_ = control_.broadcast_control(folder_);
  dist::agreed(control_, [&] {
    if (control_.rank() != 0) return;
    log_.record_in(path_of("log.txt"));
    if (!resume_.folder.empty()) continue_folder();
    io::write_resolved(resolved_deck(deck_, settings_, folder_), path_of(train::kDeckFile));
    std::filesystem::remove(path_of(kTuningFile));
    if (!session_.tuning().empty()) io::write_whole_file(path_of(kTuningFile), session_.tuning());
    if (data_.tokenizer != nullptr) data_.tokenizer->save(path_of(data_.tokenizer->file_name()));
  });
  resume_.state_file = control_.broadcast_control(resume_.state_file);
  summary_.folder = folder_;
  run_.enter(folder_, resume_.source.empty() ? 0 : resume_.record.step);
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
  log_.note("");
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

io::CheckpointRecord TrainingRun::record_after(std::int64_t step, const train::LossScaler& loss_scaler) const {
  return {.step = step,
          .tokens = tokens_,
          .optimizer_start = settings_.step.optimizer_start,
          .seed = settings_.seed,
          .global_batch = settings_.batch.global_batch,
          .num_samples = data_.train->num_samples(),
          .data = data_identity_,
          .model = model_json(settings_.model),
          .tokenizer = tokenizer_,
          .deck = io::resolved_text(resolved_deck(deck_, settings_, folder_)),
          .loss_scale = loss_scaler.state(),
          .tuning = session_.tuning().empty() ? "" : io::xxh3_128(session_.tuning())};
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
  comm_->reset();
  run_.begin_steps();
  train_all_steps();
  if (run_.stopped_by_signal()) stop_by_signal();
  say_memory();
  save_weights();
  saving_->finish();
  run_.end_steps();
  say_evaluation();
  say_sample();
  run_.end_outputs();
  log_.say(fmt::format("everything lies in {}: {}, {}, metrics.jsonl, log.txt", folder_, train::kWeightsFile,
                       train::kDeckFile));
  if (run_.reason() != stop_reason::kNone) throw stopped();
  run_.finish();
}

void TrainingRun::stop_by_signal() {
  if (deck_.checkpoint.every == 0) save_weights();
  saving_->finish();
  run_.require_outputs();
  throw stopped();
}

Error TrainingRun::stopped() {
  const std::string weights = path_of(train::kWeightsFile);
  if (deck_.checkpoint.every == 0) {
    return run_.stopped(settings_.steps,
                        "its weights are in " + weights + ", but without checkpoint.every not the optimizer's state",
                        weights);
  }
  const bool saved = saving_->saved_step() == summary_.steps;
  return run_.stopped(settings_.steps,
                      saved ? "its checkpoint is " + io::checkpoint_folder(folder_, summary_.steps)
                            : "its checkpoint could not be saved, older ones are as they were",
                      "auto");
}

void TrainingRun::say_banner() {
  const Banner banner{
      deck_, settings_, plan_, *comm_, session_.runtime(), assembly_->network().parameters(), data_.description};
  for (const auto& line : lines_of(banner)) log_.say(line);
  if (deck_.checkpoint.every > 0 && deck_.checkpoint.async && !settings_.staged) {
    log_.say("note         saving is synchronous: this MPI may be called by one thread alone");
  }
  if (const std::string note = note_on_device(deck_); !note.empty()) log_.say("note         " + note);
  for (const auto& line : start_notes_) log_.say(line);
  if (data_.loss_floor) log_.say(fmt::format("loss floor   {:.4f} (the source's entropy)", *data_.loss_floor));
}

void TrainingRun::begin() {
  for (const auto& reason : resume_.skipped) log_.say("skipped      " + reason);
  if (resume_.source.empty()) {
    if (!resume_.folder.empty()) log_.say("resume       no complete checkpoint in " + folder_ + ": from the beginning");
    const std::string line = begin_weights(deck_, *assembly_, control_);
    if (!line.empty()) log_.say(line);
    return;
  }
  if (deck_.model.init != kRandom) log_.say("note         model.init is not read: checkpoint.resume wins");
  const auto absent = train::load_state(resume_.state_file, assembly_->parts(), control_);
  const io::CheckpointRecord& saved = resume_.record;
  summary_.steps = saved.step;
  tokens_ = saved.tokens;
  settings_.step.loss_scaler.restore(saved.loss_scale);
  settings_.step.optimizer_start = absent.empty() ? saved.optimizer_start : saved.step;
  log_.say(fmt::format("resume       after step {}, {} tokens, from {}", saved.step, saved.tokens, resume_.source));
  if (!absent.empty())
    log_.say("warning      weights only: no " + absent.front() + " there, the optimizer's state begins anew");
  if (saved.seed != settings_.seed)
    log_.say(
        fmt::format("note         run.seed is {} and was {}: another order of the data", settings_.seed, saved.seed));
  if (const std::string mine = record_after(0, settings_.step.loss_scaler).tuning; saved.tuning != mine) {
    log_.say(fmt::format("note         products go by {} and went by {}: their last bits may differ",
                         named_tuning(mine), named_tuning(saved.tuning)));
  }
  if (const std::string other = other_data(); !other.empty()) log_.say("note         " + other);
  const std::int64_t samples = data_.train->num_samples();
  if (saved.num_samples != samples) {
    log_.say(fmt::format("note         the data have {} samples and had {}: another order of the data", samples,
                         saved.num_samples));
  }
}

void TrainingRun::train_all_steps() {
  const Phase phase("training");
  const train::Sampler sampler(settings_.seed, data_.train->num_samples(), settings_.batch.global_batch);
  train::Trainer trainer(assembly_->parts(), assembly_->loader(), sampler, *data_.train, settings_.step);
  std::optional<io::MetricsFile> metrics;
  const std::int64_t first = resume_.record.step + 1;
  if (control_.rank() == 0 && resume_.folder.empty()) metrics.emplace(path_of("metrics.jsonl"));
  if (control_.rank() == 0 && !resume_.folder.empty()) metrics.emplace(path_of("metrics.jsonl"), resume_.record.step);
  io::Progress progress(log_, settings_.steps, deck_.log.every);
  for (std::int64_t step = first; step <= settings_.steps && run_.reason() == stop_reason::kNone; ++step) {
    data_check_->look();
    comm_->reset();
    assembly_->timeline().clear();
    const auto step_start = Clock::now();
    const train::StepResult result = trainer.step(step, run_.request());
    const double seconds = seconds_since(step_start);
    tokens_ += result.tokens;
    if (step == first) summary_.first_loss = result.loss;
    if (step > first || settings_.steps == first) tokens_per_s_.add(static_cast<double>(result.tokens) / seconds);
    summary_.last_loss = result.loss;
    summary_.steps = step;
    io::StepMetrics row = metrics_of(result, seconds);
    progress.update({step, result.loss, row.tokens_per_s, seconds, io::resident_memory().current, row.loss_scale});
    if (result.skipped) say_skipped(result, trainer.loss_scaler().scale());
    summary_.skipped_steps += result.skipped ? 1 : 0;
    // A run whose time ends within its last step is complete.
    const bool is_complete = step == settings_.steps && result.request == stop_reason::kTimeOver;
    run_.count_step(step, is_complete ? stop_reason::kNone : result.request);
    if (run_.reason() == stop_reason::kNone) row.val_loss = evaluate_after(step);
    if (metrics) run_.write(*metrics, row);
    saving_->look();
    const bool is_last = step == settings_.steps || run_.reason() != stop_reason::kNone;
    const bool has_folder = run_.reason() != stop_reason::kFolderLost;
    if (!has_folder || !saving_->due(step, is_last)) continue;
    identify_data();
    saving_->save(record_after(step, trainer.loss_scaler()), small_files_, result.skips_in_a_row == 0);
  }
  data_check_->look(std::chrono::seconds(2));
  if (!data_check_->done()) log_.say("note         the run ended before all its token shards were checked");
  run_.require_outputs();
  summary_.median_tokens_per_s = median(tokens_per_s_.values());
}

void TrainingRun::say_skipped(const train::StepResult& result, double next_scale) {
  const std::string what = result.bad_tensor.empty() ? "the loss" : "the gradient of " + result.bad_tensor;
  const std::string scale =
      next_scale == result.loss_scale
          ? ""
          : fmt::format(" (an overflow at loss scale {:.0f}, which is now {:.0f})", result.loss_scale, next_scale);
  log_.say(fmt::format("step {}: {} is not finite; the update was left out{}", result.step, what, scale));
}

std::optional<double> TrainingRun::utilisation(double tokens_per_s) const {
  if (!(peak_flops_ > 0.0)) return std::nullopt;
  return tokens_per_s * assembly_->network().flops_per_token() / peak_flops_;
}

io::StepMetrics TrainingRun::metrics_of(const train::StepResult& result, double seconds) {
  io::StepMetrics row;
  row.step = result.step;
  row.tokens = tokens_;
  row.loss = result.loss;
  row.grad_norm = result.grad_norm;
  row.lr = result.lr;
  if (settings_.precision == Precision::fp16) row.loss_scale = result.loss_scale;
  row.skipped = result.skipped;
  row.skips_in_a_row = result.skips_in_a_row;
  row.step_s = seconds;
  row.tokens_per_s = static_cast<double>(result.tokens) / seconds;
  row.mfu = utilisation(row.tokens_per_s);
  row.seconds = assembly_->timeline().seconds();
  if (deck_.checkpoint.every > 0) row.seconds["checkpoint"] = saving_->take_stall();
  for (const auto& count : comm_->counts()) {
    row.bytes_sent[std::string(count.collective)] = count.bytes;
    row.seconds[std::string(count.collective)] = count.seconds;
  }
  for (std::size_t i = 0; i < kMemoryNames.size(); ++i) {
    row.memory[std::string(kMemoryNames[i])] = ledger_.bytes(static_cast<Memory>(i));
  }
  const auto resident = io::resident_memory();
  row.memory["resident"] = resident.current;
  row.memory["peak"] = resident.peak;
  return row;
}

std::optional<double> TrainingRun::validation_loss(const std::function<bool()>& stops) {
  const Phase phase("evaluation");
  const train::Evaluator evaluator{assembly_->network(), *comm_, assembly_->loader(), settings_.batch.micro_batch};
  const std::int64_t samples = deck_.train.eval_batches * settings_.batch.global_batch;
  const auto evaluation = train::evaluate(evaluator, *data_.validation, samples, stops);
  return evaluation ? std::optional(evaluation->loss) : std::nullopt;
}

std::optional<double> TrainingRun::evaluate_after(std::int64_t step) {
  if (data_.validation == nullptr || deck_.train.eval_every == 0 || step % deck_.train.eval_every != 0)
    return std::nullopt;
  const auto loss = validation_loss([&] { return run_.signal_on_any_rank(*comm_); });
  if (loss) log_.say(fmt::format("step {}: validation loss {:.4f}", step, *loss));
  return loss;
}

std::map<std::string, std::string> TrainingRun::small_files() const {
  std::map<std::string, std::string> texts;
  if (control_.rank() != 0) return texts;
  texts[train::kDeckFile] = io::resolved_text(resolved_deck(deck_, settings_, folder_));
  if (!session_.tuning().empty()) texts[kTuningFile] = session_.tuning();
  if (data_.tokenizer == nullptr) return texts;
  const std::string file = data_.tokenizer->file_name();
  texts[file] = io::read_whole_file(path_of(file), std::int64_t{1} << 30);
  return texts;
}

void TrainingRun::save_weights() {
  const Phase phase("saving weights");
  const io::WeightsDescription description{model_json(settings_.model), summary_.steps, tokens_,
                                           train::ties_of(assembly_->network())};
  const auto comm = dist::make_control_communicator(session_.environment().world(), deck_.comm.timeout_s,
                                                    {.io_timeout_s = deck_.checkpoint.io_timeout_s});
  train::save_weights(path_of(train::kWeightsFile), assembly_->network().parameters(), assembly_->state().weights(),
                      *comm, description);
}

void TrainingRun::say_memory() {
  const auto mine = static_cast<double>(memory_use_.taken(session_));
  const auto peaks = control_.gather_control({mine});
  summary_.peak_memory = static_cast<std::int64_t>(*std::max_element(peaks.begin(), peaks.end()));
  log_.say(
      fmt::format("memory       planned {:.1f} MiB, booked {:.1f} MiB, measured at most {:.1f} MiB a rank ({})",
                  static_cast<double>(plan_.needed().device) / kMiB,
                  static_cast<double>(ledger_.total() - (kHostIsDevice ? 0 : ledger_.bytes(Memory::staging))) / kMiB,
                  static_cast<double>(summary_.peak_memory) / kMiB,
                  kHostIsDevice ? "with the program" : "of the GPU, beyond the driver's context"));
}

void TrainingRun::say_evaluation() {
  const std::int64_t first = resume_.record.step + 1;
  if (summary_.steps >= first) {
    const auto mfu = utilisation(summary_.median_tokens_per_s);
    log_.say(fmt::format("loss         {:.4f} at step {}, {:.4f} at step {} ({:.0f} %), {:.0f} tokens/s (median){}",
                         summary_.first_loss, first, summary_.last_loss, summary_.steps,
                         100.0 * summary_.last_loss / summary_.first_loss, summary_.median_tokens_per_s,
                         mfu ? fmt::format(", MFU {:.1f} % by 6 N + 6 L C T", 100.0 * *mfu) : ""));
  }
  if (summary_.skipped_steps > 0) {
    log_.say(fmt::format("skipped      {} of {} steps: a number was not finite", summary_.skipped_steps,
                         summary_.steps - first + 1));
  }
  const std::string closing = assembly_->network().closing_line();
  if (!closing.empty()) log_.say(closing);
  if (data_.validation == nullptr) return;
  summary_.val_loss = validation_loss({});
  log_.say(evaluation_line(*summary_.val_loss, data_.validation_bytes_per_token));
}

void TrainingRun::say_sample() {
  const Phase phase("sampling");
  if (data_.tokenizer == nullptr) return;
  train::Generator generator(assembly_->network(), *comm_, data_.tokenizer->vocab_size(), ledger_);
  const std::vector<Token> prompt = data_.tokenizer->encode("\n");
  const auto tokens = generator.continued(prompt, 240, {.temperature = 0.8, .top_k = 40, .seed = settings_.seed});
  log_.say("a sample of what it writes:\n" + indented(data_.tokenizer->decode(tokens)));
}

}  // namespace kozero::commands
