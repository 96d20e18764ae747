// SPDX-FileCopyrightText: The KoZeRO authors
// SPDX-License-Identifier: Apache-2.0
#include <array>
#include <cmath>
#include <numbers>

#include <fmt/format.h>

#include <kozero/core/precision.hpp>
#include <kozero/io/utf8.hpp>
#include <kozero/kernels/attention.hpp>
#include <kozero/kernels/matmul.hpp>
#include <kozero/kernels/product_tuning.hpp>
#include <kozero/model/self_attention.hpp>

#include "banner.hpp"

namespace kozero::commands {
namespace {

const char* name_of(dist::Placement placement) {
  switch (placement) {
    case dist::Placement::replicated:
      return "replicated";
    case dist::Placement::sharded:
      return "sharded";
    case dist::Placement::partial:
      return "partial";
  }
  return "";
}

std::string stage_line(const Banner& banner) {
  const auto row = zero::placement_row(banner.settings.zero.stage);
  return fmt::format("ZeRO         stage {} on {} {}: parameters {}, gradients {}, optimizer state {}",
                     banner.settings.zero.stage, banner.comm.size(), banner.comm.size() == 1 ? "rank" : "ranks",
                     name_of(row.parameters), name_of(row.gradients), name_of(row.optimizer));
}

std::string batch_line(const Banner& banner) {
  const auto& batch = banner.settings.batch;
  const bool local = banner.settings.zero.accumulation == zero::Accumulation::local;
  return fmt::format(
      "batch        {} sequences of {} tokens a step = at most {} a rank at once x {} {} x {} {}, gradients added {}",
      batch.global_batch, banner.settings.model.seq, batch.micro_batch, banner.comm.size(),
      banner.comm.size() == 1 ? "rank" : "ranks", batch.micro_steps,
      batch.micro_steps == 1 ? "micro-step" : "micro-steps", local ? "locally, then reduced" : "after reduction");
}

std::string model_line(const Banner& banner) {
  const auto& model = banner.settings.model;
  if (model.arch == "linear") {
    return fmt::format("model        linear, {} inputs, {} outputs: {} parameters", model.dim, model.ffn,
                       banner.parameters.num_parameters());
  }
  return fmt::format(
      "model        {}, {} layers, {} channels, {} heads, vocabulary {}: {:.2f} M parameters in {} units", model.arch,
      model.layers, model.dim, model.heads, model.vocab, static_cast<double>(banner.parameters.num_parameters()) / 1e6,
      banner.parameters.num_units());
}

std::string multiplier_text(const Banner& banner) {
  const std::string name = with_stored_type(banner.settings.precision, [](auto type) {
    const std::string note = kernels::multiplier_note<decltype(type)>();
    return kernels::multiplier<decltype(type)>() + (note.empty() ? "" : fmt::format(" ({})", note));
  });
  if (banner.deck.run.tuning == "none") return name;
  return fmt::format("{} tuned by {} ({} kinds)", name, banner.deck.run.tuning, kernels::product_ways().size());
}

/// "AMX"; "none" where the network has none.
std::string attention_text(const Banner& banner) {
  const auto& model = banner.settings.model;
  if (model.arch == "linear") return "none";
  auto shape = model::attention_shape(model, banner.settings.batch.micro_batch, model.seq);
  shape.dropout = model.dropout;
  return with_stored_type(banner.settings.precision,
                          [&](auto type) { return kernels::attention_by<decltype(type)>(shape); });
}

std::string precision_line(const Banner& banner) {
  const Precision precision = banner.settings.precision;
  const std::string products = multiplier_text(banner);
  const std::string attention = attention_text(banner);
  return precision == Precision::f32
             ? fmt::format("precision    f32, products by {}, attention by {}", products, attention)
             : fmt::format(
                   "precision    {} weights and activations, products by {}, attention by {}; f32 master weights, "
                   "moments, gradients "
                   "and sums",
                   name_of(precision), products, attention);
}

std::string memory_line(const Banner& banner) {
  std::string line =
      fmt::format("memory plan  {:.1f} MiB of arrays a rank:", static_cast<double>(banner.plan.total()) / kMiB);
  for (std::size_t i = 0; i < kMemoryNames.size(); ++i) {
    if (banner.plan.bytes[i] == 0) continue;
    line += fmt::format(" {} {:.1f},", kMemoryNames[i], static_cast<double>(banner.plan.bytes[i]) / kMiB);
  }
  line.pop_back();
  return line;
}

}  // namespace

std::vector<std::string> lines_of(const Banner& banner) {
  const auto& deck = banner.deck;
  std::vector<std::string> lines = {
      fmt::format("deck         {}", deck.source),
      model_line(banner),
      fmt::format("data         {}", banner.data),
      stage_line(banner),
      batch_line(banner),
      precision_line(banner),
      fmt::format("optimizer    {}, lr {} {}, {} steps", deck.optim.kind, banner.settings.step.schedule.lr,
                  deck.optim.schedule, banner.settings.steps),
      fmt::format("placement    {}{}, communicator {}", banner.comm.size() > 1 ? "rank 0: " : "",
                  banner.runtime.placement(), banner.comm.description()),
      memory_line(banner)};
  if (deck.run.ranks != banner.comm.size()) {
    lines.push_back(fmt::format("note         run.ranks = {}, started with {}: ./kozero.sh -n {} starts that many",
                                deck.run.ranks, banner.comm.size(), deck.run.ranks));
  }
  const std::int64_t sequences = banner.settings.batch.global_batch;
  if (sequences < banner.comm.size()) {
    lines.push_back(
        fmt::format("note         a step has {} sequences (train.global_batch) for {} ranks: {} compute none; "
                    "start at most {} ranks, or give more sequences",
                    sequences, banner.comm.size(), banner.comm.size() - sequences, sequences));
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

double bits_per_byte(double loss, double bytes_per_token) { return loss / std::numbers::ln2 / bytes_per_token; }

std::string evaluation_line(double loss, const std::optional<double>& bytes_per_token, const std::string& what) {
  std::string line = fmt::format("{:<12} loss {:.4f}, perplexity {:.2f}", what, loss, std::exp(loss));
  if (bytes_per_token) line += fmt::format(", {:.4f} bits per byte", bits_per_byte(loss, *bytes_per_token));
  return line;
}

std::string indented(const std::string& text) {
  std::string result = "    ";
  for (const char letter : io::printable(text)) {
    result += letter;
    if (letter == '\n') result += "    ";
  }
  return result;
}

}  // namespace kozero::commands
