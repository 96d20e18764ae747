// SPDX-FileCopyrightText: The KoZeRO authors
// SPDX-License-Identifier: Apache-2.0
// training_report.cpp: what a TrainingRun prints and records: banner, a step's metrics, evaluations, memory, closing
// lines.
#include <algorithm>
#include <chrono>

#include <fmt/format.h>

#include <kozero/core/device.hpp>
#include <kozero/core/position.hpp>
#include <kozero/io/memory.hpp>
#include <kozero/train/generator.hpp>

#include "banner.hpp"
#include "device_handover.hpp"
#include "training_run.hpp"

namespace kozero::commands {
namespace {

double seconds_since_1970() {
  using Milliseconds = std::chrono::milliseconds;
  const auto now = std::chrono::system_clock::now().time_since_epoch();
  return static_cast<double>(std::chrono::duration_cast<Milliseconds>(now).count()) / 1e3;
}

}  // namespace

void TrainingRun::say_banner() {
  const Banner banner{
      deck_, settings_, plan_, *comm_, session_.runtime(), assembly_->network().parameters(), data_.description};
  for (const auto& line : lines_of(banner)) log_.say(line);
  if (deck_.checkpoint.every > 0 && deck_.checkpoint.async && !settings_.staged) {
    log_.say("note         saving is synchronous: this MPI may be called by one thread alone");
  }
  if (const std::string note = note_on_device(deck_); !note.empty()) log_.say("note         " + note);
  for (const auto& line : start_notes_) log_.say(line);
  for (const auto& text : train::schedule_notes(deck_, settings_.steps)) log_.say("note         " + text);
  if (data_.loss_floor) log_.say(fmt::format("loss floor   {:.4f} (the source's entropy)", *data_.loss_floor));
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

io::StepMetrics TrainingRun::metrics_of(const train::StepResult& result, double seconds, double epoch) {
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
  row.time = seconds_since_1970();
  row.epoch = epoch;
  return row;
}

std::optional<double> TrainingRun::evaluate_after(std::int64_t step) {
  last_evaluation_ = validation_->measure([&] { return run_.signal_on_any_rank(*comm_); });
  if (!last_evaluation_) return std::nullopt;
  log_.say(fmt::format("step {}: validation {:.4f} {}", step, last_evaluation_->loss,
                       validation_->coverage(*last_evaluation_)));
  return last_evaluation_->loss;
}

void TrainingRun::say_memory() {
  const auto mine = static_cast<double>(memory_use_.taken(session_));
  const auto peaks = control_.gather_control({mine});
  summary_.peak_memory = static_cast<std::int64_t>(*std::max_element(peaks.begin(), peaks.end()));
  const std::int64_t allocated = ledger_.total() - (kHostIsDevice ? 0 : ledger_.bytes(Memory::staging));
  log_.say(
      fmt::format("memory       of a rank: arrays planned {:.1f} MiB, arrays allocated {:.1f} MiB, {} {:.1f} MiB ({})",
                  static_cast<double>(plan_.needed().device) / kMiB, static_cast<double>(allocated) / kMiB,
                  kHostIsDevice ? "process at most" : "GPU at most", static_cast<double>(summary_.peak_memory) / kMiB,
                  kHostIsDevice ? "pages shared with other processes in part; `resident` above has them whole"
                                : "in use, beyond the driver's context"));
}

void TrainingRun::say_evaluation() {
  const std::int64_t first = resume_.record.step + 1;
  if (summary_.steps >= first) {
    const auto mfu = utilisation(summary_.median_tokens_per_s);
    log_.say(
        fmt::format("loss         of single steps: {:.4f} at step {}, {:.4f} at step {}; {:.0f} tokens/s (median){}",
                    summary_.first_loss, first, summary_.last_loss, summary_.steps, summary_.median_tokens_per_s,
                    mfu ? fmt::format(", MFU {:.1f} % by 6 N + 6 L C T", 100.0 * *mfu) : ""));
  }
  if (summary_.skipped_steps > 0) {
    log_.say(fmt::format("skipped      {} of {} steps: a number was not finite", summary_.skipped_steps,
                         summary_.steps - first + 1));
  }
  const std::string closing = assembly_->network().closing_line();
  if (!closing.empty()) log_.say(closing);
  if (!validation_->possible()) return;
  if (!last_evaluation_) last_evaluation_ = validation_->measure({});
  summary_.val_loss = last_evaluation_->loss;
  log_.say(evaluation_line(last_evaluation_->loss, data_.validation_bytes_per_token) + ", " +
           validation_->coverage(*last_evaluation_));
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
