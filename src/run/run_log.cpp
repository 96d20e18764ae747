// SPDX-FileCopyrightText: The KoZeRO authors
// SPDX-License-Identifier: Apache-2.0
// run_log.cpp: the banner's lines from settings and deck, the rows of metrics, and the closing lines.
#include <fmt/format.h>
#include <algorithm>
#include <array>
#include <chrono>
#include <cmath>

#include <kozero/core/architecture.hpp>
#include <kozero/core/device.hpp>
#include <kozero/core/error.hpp>
#include <kozero/core/events.hpp>
#include <kozero/core/ledger.hpp>
#include <kozero/core/precision.hpp>
#include <kozero/core/timing.hpp>
#include <kozero/distributed/agreement.hpp>
#include <kozero/distributed/make_communicator.hpp>
#include <kozero/model/self_attention.hpp>
#include <kozero/run/device_choice.hpp>
#include <kozero/run/evaluation_text.hpp>
#include "io/deck/check.hpp"
#include "io/deck/schema.hpp"
#include "io/posix/readable.hpp"
#include "io/posix/system_resources.hpp"
#include "kernels/attention/attention.hpp"
#include "kernels/matmul/matmul.hpp"
#include "kernels/matmul/product_tuning.hpp"
#include "src/run/rank_placement.hpp"
#include "src/run/run_log.hpp"

namespace kozero::run {
namespace {

struct Banner {
  const io::Deck& deck;
  const train::Settings& settings;
  const plan::MemoryPlan& plan;
  const distributed::Communicator& comm;
  const std::vector<RankPlacement>& ranks;
  const ParameterTable& parameters;
  const std::string& data;
  const std::string& folder;
  std::int64_t sequences;  ///< of a step: fewer than the deck's batch if the data have fewer
};

const char* name_of(distributed::Placement placement) {
  switch (placement) {
    case distributed::Placement::replicated:
      return "replicated";
    case distributed::Placement::sharded:
    case distributed::Placement::in_last_group:
      return "sharded";
    case distributed::Placement::partial:
      return "partial";
  }
  return "";
}

std::string stage_line(const Banner& banner) {
  const auto row = zero::placement_row(banner.settings.zero.stage);
  const int group = banner.settings.ranks_per_group;
  const std::string groups =
      group == banner.comm.size() ? "" : fmt::format(" in {} groups of {}", banner.comm.size() / group, group);
  return fmt::format("ZeRO         stage {} on {} {}{}: parameters {}, gradients {}, optimizer state {}",
                     banner.settings.zero.stage, banner.comm.size(), banner.comm.size() == 1 ? "rank" : "ranks", groups,
                     name_of(row.parameters), name_of(row.gradients), name_of(row.optimizer));
}

std::string batch_line(const Banner& banner) {
  const std::int64_t micro_batch = std::min(banner.settings.batch.micro_batch, banner.sequences);
  const int micro_steps = data::Granules({0, banner.sequences}, micro_batch).micro_steps(banner.comm.size());
  const bool local = banner.settings.zero.accumulation == zero::Accumulation::local;
  const std::string samples = architecture(banner.settings.model.arch).decoder
                                  ? fmt::format("sequences of {} tokens", banner.settings.step.seq)
                                  : "samples";
  return fmt::format("batch        {} {} per step = {} per rank at once x {} {} x {} {}, gradients added {}",
                     banner.sequences, samples, micro_batch, banner.comm.size(),
                     banner.comm.size() == 1 ? "rank" : "ranks", micro_steps,
                     micro_steps == 1 ? "micro-step" : "micro-steps",
                     !banner.comm.adds_in_order() ? "in the back end's order"
                     : local                      ? "on each rank, then over the ranks"
                                                  : "in one order on any number of ranks");
}

std::string model_line(const Banner& banner) {
  const auto& model = banner.settings.model;
  if (!architecture(model.arch).decoder) {
    return fmt::format("model        {}, {} inputs, {} outputs: {} parameters", model.arch, model.dim, model.ffn,
                       banner.parameters.num_parameters());
  }
  return fmt::format(
      "model        {}, {} layers, {} channels, {} heads, vocabulary {}{}: {:.2f} M parameters in {} units", model.arch,
      model.layers, model.dim, model.heads, model.vocab,
      model.vocab_block == 0 ? "" : fmt::format(" in blocks of {}", model.vocab_block),
      static_cast<double>(banner.parameters.num_parameters()) / 1e6, banner.parameters.num_units());
}

/// "300 steps", "steps 201 to 300, lesson 2 of 2 of the curriculum", "steps 13 to 24 of 100, epoch 1 of the corpus"
std::string steps_text(const Banner& banner) {
  const std::int64_t last = banner.settings.steps;
  if (banner.deck.data.grow) {
    return fmt::format("steps {} to {} of {}, epoch {} of the corpus", banner.settings.samples.steps_before + 1, last,
                       banner.deck.run.steps, banner.settings.samples.epoch);
  }
  if (banner.deck.whole == nullptr) return fmt::format("{} steps", last);
  return fmt::format("steps {} to {}, lesson {} of {} of the curriculum", banner.settings.step.steps_before + 1, last,
                     banner.deck.lesson + 1, banner.deck.run.curriculum.size());
}

/// "912", "0.05 M"
std::string count_text(std::int64_t parameters) {
  constexpr std::int64_t kFew = 10000;
  return parameters < kFew ? std::to_string(parameters)
                           : fmt::format("{:.2f} M", static_cast<double>(parameters) / 1e6);
}

/// "" if every tensor is trained.
std::string frozen_line(const Banner& banner) {
  const std::int64_t all = banner.parameters.num_parameters();
  const std::int64_t trained = banner.parameters.num_trainable();
  if (trained == all) return "";
  const model::Lora& lora = banner.settings.model.lora;
  const std::string& base = banner.deck.model.base_dtype;
  return fmt::format("trained      {} of {} parameters; ", count_text(trained), count_text(all)) +
         (lora.rank == 0 ? "frozen: " + io::joined(banner.deck.optim.freeze)
                         : fmt::format("adapters of rank {}, scaled by {:g}, of {}{}", lora.rank, lora.scale(),
                                       io::joined(lora.targets), base == "none" ? "" : "; the base in " + base));
}

std::string multiplier_text(const Banner& banner) {
  const std::string name = with_stored_type(banner.settings.precision, [](auto type) {
    const std::string note = kernels::multiplier_note<decltype(type)>();
    return kernels::multiplier<decltype(type)>() + (note.empty() ? "" : fmt::format(" ({})", note));
  });
  if (banner.deck.run.tuning == "none") return name;
  return fmt::format("{} tuned by {} ({} kinds)", name, banner.deck.run.tuning, kernels::product_algorithms().size());
}

/// ", attention by AMX"; "" if the network has no attention.
std::string attention_text(const Banner& banner) {
  const auto& model = banner.settings.model;
  if (!architecture(model.arch).decoder) return "";
  auto shape = model::attention_shape(model, banner.settings.batch.micro_batch, banner.settings.step.seq);
  shape.dropout = model.dropout;
  if (banner.settings.masks_documents) shape.documents.longest = banner.settings.step.seq;
  return ", attention by " + with_stored_type(banner.settings.precision,
                                              [&](auto type) { return kernels::attention_by<decltype(type)>(shape); });
}

std::string precision_line(const Banner& banner) {
  const Precision precision = banner.settings.precision;
  const std::string products = multiplier_text(banner);
  const std::string attention = attention_text(banner);
  return precision == Precision::f32
             ? fmt::format("precision    f32, products by {}{}", products, attention)
             : fmt::format(
                   "precision    {} weights and activations, products by {}{}; f32 master weights, "
                   "moments, gradients "
                   "and sums",
                   name_of(precision), products, attention);
}

/// The defaults in force for keys that decide training quality and checkpoints; "" if the deck gives all of them.
std::string defaults_line(const Banner& banner) {
  const auto& deck = banner.deck;
  std::string text;
  for (const std::string key : {"optim.lr", "optim.schedule", "optim.warmup_steps", "optim.betas", "optim.weight_decay",
                                "checkpoint.every", "checkpoint.keep"}) {
    if (deck.is_set(key) || !io::is_read(deck, key)) continue;
    if (key == "checkpoint.keep" && deck.checkpoint.every == 0) continue;
    const std::string value = key == "optim.warmup_steps" ? std::to_string(banner.settings.step.schedule.warmup_steps)
                                                          : io::text_in(deck, *io::find_row(key));
    text += fmt::format("{}{} = {}", text.empty() ? "" : ", ", key, value);
  }
  return text.empty() ? "" : "defaults     " + text;
}

/// "12.3", in MiB.
std::string in_mib(std::int64_t bytes) { return plan::text_in({"MiB", kMiB, 1}, static_cast<double>(bytes)); }

std::string memory_line(const Banner& banner) {
  std::string line = fmt::format("memory plan  {} MiB of arrays per rank:", in_mib(banner.plan.total()));
  for (std::size_t i = 0; i < kMemoryNames.size(); ++i) {
    if (banner.plan.bytes[i] == 0 || static_cast<Memory>(i) == Memory::disk) continue;
    line += fmt::format(" {} {},", kMemoryNames[i], in_mib(banner.plan.bytes[i]));
  }
  line.pop_back();
  if (const std::int64_t disk = banner.plan.of(Memory::disk); disk > 0) {
    line += "; on disk " + in_mib(disk);
  }
  return line;
}

std::vector<std::string> lines_of(const Banner& banner) {
  const auto& deck = banner.deck;
  std::vector<std::string> lines = {
      fmt::format("deck         {}", deck.source),
      fmt::format("folder       {}", banner.folder),
      model_line(banner),
      fmt::format("data         {}", banner.data),
      stage_line(banner),
      batch_line(banner),
      precision_line(banner),
      fmt::format("optimizer    {}, lr {} {}, {}", deck.optim.kind, banner.settings.step.schedule.lr,
                  deck.optim.schedule, steps_text(banner)),
  };
  for (auto& line : placement_lines(banner.ranks, banner.comm.description())) lines.push_back(std::move(line));
  lines.push_back(memory_line(banner));
  const std::string network = distributed::simulated_network(banner.settings.comm);
  if (!network.empty() && banner.comm.size() > 1) lines.push_back("network      simulated: " + network + ", per rank");
  for (const std::string& line : {frozen_line(banner), defaults_line(banner)}) {
    if (!line.empty()) lines.push_back(line);
  }
  if (banner.comm.size() == 1 && deck.run.ranks > 1) {
    lines.push_back(fmt::format(
        "note         run.ranks = {0}, started with 1: kozero.sh without -n, or mpiexec -n {0}, starts that many",
        deck.run.ranks));
  }
  std::int64_t blocks = 0;
  for (const Unit& unit : banner.parameters.units()) blocks = std::max(blocks, unit.extent / kAlignment);
  if (blocks < banner.comm.size()) {
    lines.push_back(
        fmt::format("note         the model's largest unit has {} blocks of {} parameters for {} ranks: "
                    "{} own none",
                    blocks, kAlignment, banner.comm.size(), banner.comm.size() - blocks));
  }
  return lines;
}

}  // namespace

RunLog::RunLog(RunStart& start) : start_(start) {
  summary_.folder = start.folder();
  const double gpus = static_cast<double>(start.control_comm().size()) / ranks_per_gpu(start.session());
  peak_flops_ = gpus * published_peak(device_name(), settings_.precision != Precision::f32);
}

void RunLog::say_banner() {
  const Banner banner{deck_,
                      settings_,
                      on_ranks_.plan(),
                      *on_ranks_.mesh().all,
                      start_.session().placements(),
                      engine_.parameters(),
                      data_.description,
                      start_.folder(),
                      data::sampler_of(data_, settings_.order_seed, settings_.batch.global_batch, settings_.samples)
                          .sequences_of_step()};
  for (const auto& line : lines_of(banner)) log_.say(line);
  if (deck_.checkpoint.every > 0 && deck_.checkpoint.async && !settings_.staged) {
    log_.say(settings_.offload.uses(MemorySource::Kind::disk)
                 ? "note         saving is synchronous: state on a disk has no copy in memory"
                 : "note         saving is synchronous: this MPI may be called by one thread alone");
  }
  if (const std::string note = note_on_device(deck_); !note.empty()) log_.say("note         " + note);
  for (const auto& line : start_.notes()) log_.say(line);
  if (const auto note = train::schedule_note(deck_, settings_.step.schedule.total_steps); !note.empty())
    log_.say("note         " + note);
  if (data_.loss_floor) log_.say(fmt::format("loss floor   {:.4f} (the source's entropy)", *data_.loss_floor));
}

void RunLog::say_skipped(const train::StepResult& result, double next_scale) {
  const std::string what = result.bad_tensor.empty() ? "the loss" : "the gradient of " + result.bad_tensor;
  const std::string scale =
      next_scale == result.loss_scale
          ? ""
          : fmt::format(" (an overflow at loss scale {:.0f}, which is now {:.0f})", result.loss_scale, next_scale);
  log_.say(fmt::format("step {}: {} is not finite; the update was left out{}", result.step, what, scale));
}

std::optional<double> RunLog::utilization(double tokens_per_s) const {
  if (!(peak_flops_ > 0.0)) return std::nullopt;
  return tokens_per_s * engine_.flops_per_token() / peak_flops_;
}

void RunLog::begin_steps() {
  summary_.steps = start_.step();
  tokens_ = start_.tokens();
}

io::StepMetrics RunLog::count(const train::StepResult& result, double seconds, double epoch, double stall_s) {
  const std::int64_t first = start_.step() + 1;
  tokens_ += result.tokens;
  if (result.step == first) summary_.first_loss = result.loss;
  if (result.step > first || settings_.steps == first) {
    tokens_per_s_.add(static_cast<double>(result.tokens) / seconds);
  }
  summary_.last_loss = result.loss;
  summary_.steps = result.step;
  summary_.skipped_steps += result.skipped ? 1 : 0;
  last_evaluation_.reset();
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
  row.mfu = utilization(row.tokens_per_s);
  row.seconds = engine_.phase_seconds().seconds();
  if (deck_.checkpoint.every > 0) row.seconds["checkpoint"] = stall_s;
  for (const auto& count : on_ranks_.mesh().counts->rows()) {
    row.bytes_sent[count.collective] = count.bytes;
    row.calls[count.collective] = count.calls;
    row.bytes_across_groups += count.bytes_across;
    row.seconds[count.collective] = count.seconds;
    if (count.waited) row.seconds[std::string(count.collective) + "_waiting"] = *count.waited;
  }
  for (std::size_t i = 0; i < kMemoryNames.size(); ++i) {
    row.memory[std::string(kMemoryNames[i])] = on_ranks_.ledger().bytes(static_cast<Memory>(i));
  }
  const auto resident = io::resident_memory();
  row.memory["resident"] = resident.current;
  row.memory["peak"] = resident.peak;
  row.time = io::seconds_since_1970();
  row.epoch = epoch;
  return row;
}

void RunLog::evaluate_after(io::StepMetrics& row) {
  last_evaluation_ = validation_.measure([&] { return start_.control().signal_on_any_rank(*on_ranks_.mesh().all); });
  if (!last_evaluation_) return;
  const std::string bad =
      train::text_of_non_finite(*last_evaluation_, fmt::format("step {}: the validation loss", row.step));
  if (!bad.empty()) return say_non_finite(bad);
  row.val_loss = last_evaluation_->loss;
  log_.say(fmt::format("step {}: validation {} {}", row.step, io::loss_text(last_evaluation_->loss),
                       validation_.coverage(*last_evaluation_)));
  for (const auto& source : last_evaluation_->sources) {
    io::SourceLoss& loss = row.val_sources[source.name];
    loss.loss = source.loss;
    if (source.bytes_per_token) loss.bits_per_byte = bits_per_byte(source.loss, *source.bytes_per_token);
    log_.say(fmt::format("step {}: {}", row.step, source_line(source)));
  }
}

void RunLog::say_non_finite(const std::string& text) {
  if (settings_.step.on_nonfinite == train::OnNonFinite::stop) {
    throw Error(Failure::non_finite, text + "; resume from an older checkpoint with a lower optim.lr",
                Error::Seen::by_all_ranks);
  }
  log_.say("warning      " + text + "; the run goes on (train.on_nonfinite = \"skip\")");
}

void RunLog::end_steps() { summary_.median_tokens_per_s = median(tokens_per_s_.values()); }

void RunLog::say_memory() {
  const auto peaks = distributed::from_all_ranks(start_.control_comm(), start_.memory_use().taken(start_.session()));
  summary_.peak_memory = *std::max_element(peaks.begin(), peaks.end());
  const std::int64_t allocated =
      on_ranks_.ledger().total() - (kHostIsDevice ? 0 : on_ranks_.ledger().bytes(Memory::staging));
  log_.say(fmt::format("memory       per rank: arrays planned {} MiB, allocated {} MiB; peak {} {:.1f} MiB ({})",
                       in_mib(on_ranks_.plan().needed().device), in_mib(allocated),
                       kHostIsDevice ? "process memory" : "GPU memory",
                       static_cast<double>(summary_.peak_memory) / kMiB,
                       kHostIsDevice ? fmt::format("{:.1f} MiB before the arrays; a page that n processes share counts "
                                                   "as 1/n, in `resident` above as 1",
                                                   static_cast<double>(start_.memory_use().before()) / kMiB)
                                     : "in use, without the driver's context"));
}

void RunLog::say_evaluation() {
  const std::int64_t first = start_.step() + 1;
  if (summary_.steps >= first) {
    const auto mfu = utilization(summary_.median_tokens_per_s);
    log_.say(fmt::format("loss         of single steps: {} at step {}, {} at step {}; {:.0f} tokens/s (median){}",
                         io::loss_text(summary_.first_loss), first, io::loss_text(summary_.last_loss), summary_.steps,
                         summary_.median_tokens_per_s,
                         mfu ? fmt::format(", MFU {:.1f} % by 6 N + 6 L C T", 100.0 * *mfu) : ""));
  }
  if (summary_.skipped_steps > 0) {
    log_.say(fmt::format("skipped      {} of {} steps: a number was not finite", summary_.skipped_steps,
                         summary_.steps - first + 1));
  }
  const std::string closing = engine_.closing_line();
  if (!closing.empty()) log_.say(closing);
  if (!validation_.possible()) return;
  if (!last_evaluation_) last_evaluation_ = validation_.measure({});
  const std::string bad = train::text_of_non_finite(*last_evaluation_, "the validation loss");
  if (!bad.empty()) return say_non_finite(bad);
  summary_.val_loss = last_evaluation_->loss;
  log_.say(evaluation_line(last_evaluation_->loss, data_.validation_bytes_per_token) + ", " +
           validation_.coverage(*last_evaluation_));
  for (const auto& source : last_evaluation_->sources) log_.say("  " + source_line(source));
}

}  // namespace kozero::run
