// SPDX-FileCopyrightText: The KoZeRO authors
// SPDX-License-Identifier: Apache-2.0
// settings.cpp: numbers derived from the deck and the rank count, and the construction of a run's parts.
#include <algorithm>
#include <cmath>

#include <kozero/core/error.hpp>
#include <kozero/train/checkpoint.hpp>
#include <kozero/train/settings.hpp>
#include "kernels/matmul/matmul.hpp"

namespace kozero::train {
namespace {

std::int64_t ceil_div(std::int64_t a, std::int64_t b) { return (a + b - 1) / b; }

std::int64_t total_steps(const io::Deck& deck, std::int64_t num_samples, std::int64_t global_batch) {
  if (deck.run.epochs == 0) return deck.run.steps;
  return std::max<std::int64_t>(1, deck.run.epochs * ceil_div(num_samples, global_batch));
}

std::int64_t clamped_warmup(const io::Deck& deck, std::int64_t steps) {
  return std::min(deck.optim.warmup_steps, steps);
}

std::int64_t clamped_decay(const io::Deck& deck, std::int64_t steps) {
  return std::min(deck.optim.decay_steps, steps - clamped_warmup(deck, steps));
}

optim::ScheduleConfig schedule_of(const io::Deck& deck, double rate_factor, std::int64_t steps) {
  return {.kind = deck.optim.schedule,
          .lr = deck.optim.lr * rate_factor,
          .min_lr = deck.optim.min_lr * rate_factor,
          .warmup_steps = clamped_warmup(deck, steps),
          .decay_steps = clamped_decay(deck, steps),
          .total_steps = steps};
}

}  // namespace

BatchSizes batch_sizes(const io::Deck& deck, int num_ranks) {
  BatchSizes sizes{.global_batch = deck.train.global_batch, .micro_batch = deck.train.micro_batch};
  sizes.rate_factor = optim::scaled_rate(deck.train.batch_scaling, 1.0, num_ranks, deck.train.base_ranks);
  if (deck.train.batch_scaling != "none") {
    const double growth = static_cast<double>(num_ranks) / static_cast<double>(deck.train.base_ranks);
    sizes.global_batch = std::max<std::int64_t>(1, std::llround(static_cast<double>(sizes.global_batch) * growth));
  }
  if (deck.train.accumulate > 0) sizes.global_batch = num_ranks * deck.train.micro_batch * deck.train.accumulate;
  const std::int64_t most = ceil_div(sizes.global_batch, num_ranks);
  sizes.micro_steps = static_cast<int>(ceil_div(most, deck.train.micro_batch));
  sizes.micro_batch = ceil_div(most, sizes.micro_steps);
  return sizes;
}

namespace {

model::RopeScaling rope_scaling_of(const io::RopeScalingKeys& keys) {
  return {static_cast<float>(keys.factor), static_cast<float>(keys.low_freq_factor),
          static_cast<float>(keys.high_freq_factor), keys.original_seq};
}

Precision precision_of(const std::string& name) {
  for (const auto precision : {Precision::bf16, Precision::fp16}) {
    if (name == name_of(precision)) return precision;
  }
  return Precision::f32;
}

LossScaler loss_scaler_of(const io::TrainKeys& keys) {
  if (precision_of(keys.precision) != Precision::fp16) return {};
  return keys.loss_scale == 0 ? LossScaler::dynamic(keys.loss_scale_window)
                              : LossScaler::fixed(static_cast<double>(keys.loss_scale));
}

/// model::resolved, whose refusal says where a value comes from that the deck does not give.
model::Config resolved_for(const io::Deck& deck, const model::Config& config) {
  try {
    return model::resolved(config);
  } catch (const Error& problem) {
    const std::string text = problem.what();
    const std::string key = text.substr(0, text.find(' '));
    if (deck.is_set(key)) throw;
    const bool in_preset = deck.model.preset != "none";
    throw Error(problem.failure(),
                text + "; the deck does not give " + key + ": its value is " +
                    (in_preset ? "that of model.preset = \"" + deck.model.preset + "\"" : "derived from other keys"));
  }
}

}  // namespace

model::Config model_config(const io::Deck& deck, std::int64_t data_vocab) {
  const io::ModelKeys& keys = deck.model;
  model::Config config;
  config.arch = keys.arch;
  if (keys.preset != "none") config = model::with_preset(config, keys.preset);
  const auto given = [](std::int64_t key, std::int64_t& member) {
    if (key > 0) member = key;
  };
  given(keys.layers, config.layers);
  given(keys.dim, config.dim);
  given(keys.heads, config.heads);
  given(keys.kv_heads, config.kv_heads);
  given(keys.head_dim, config.head_dim);
  given(keys.ffn, config.ffn);
  given(keys.seq, config.seq);
  if (keys.vocab > 0 || keys.preset == "none")
    config.vocab = keys.vocab > 0 ? keys.vocab : std::max<std::int64_t>(data_vocab, 1);
  if (config.arch != "linear" && config.vocab < data_vocab) {
    const bool given_here = keys.vocab > 0;
    throw Error(Failure::deck,
                (given_here ? "model.vocab = " : "model.preset = \"" + keys.preset + "\" has vocabulary ") +
                    std::to_string(config.vocab) + ": the data's tokenizer has " + std::to_string(data_vocab) +
                    " tokens; " + (given_here ? "leave the key out, or give at least that" : "give model.vocab"));
  }
  const auto decides = [&](const char* key) { return keys.preset == "none" || deck.is_set(key); };
  if (decides("model.tie_embeddings")) config.tie_embeddings = keys.tie_embeddings;
  if (decides("model.rope_theta")) config.rope_theta = static_cast<float>(keys.rope_theta);
  if (decides("model.rope_scaling")) config.rope_scaling = rope_scaling_of(keys.rope_scaling);
  if (decides("model.norm_eps")) config.norm_eps = static_cast<float>(keys.norm_eps);
  config.qkv_bias = keys.qkv_bias;
  config.qk_norm = keys.qk_norm;
  config.dropout = static_cast<float>(keys.dropout);
  config.seed = static_cast<std::uint64_t>(deck.run.seed);
  return resolved_for(deck, config);
}

std::vector<std::string> schedule_notes(const io::Deck& deck, std::int64_t steps) {
  const auto note = [&](const std::string& key, std::int64_t given, std::int64_t clamped) {
    return "optim." + key + " = " + std::to_string(given) + " goes beyond the run's " + std::to_string(steps) +
           " steps: clamped to " + std::to_string(clamped);
  };
  std::vector<std::string> notes;
  const std::int64_t warmup = clamped_warmup(deck, steps);
  const std::int64_t decay = clamped_decay(deck, steps);
  if (warmup != deck.optim.warmup_steps) notes.push_back(note("warmup_steps", deck.optim.warmup_steps, warmup));
  if (decay != deck.optim.decay_steps) notes.push_back(note("decay_steps", deck.optim.decay_steps, decay));
  return notes;
}

Settings settings_of(const io::Deck& deck, int num_ranks, std::int64_t data_vocab, std::int64_t num_samples) {
  Settings settings;
  settings.precision = precision_of(deck.train.precision);
  settings.model = model_config(deck, data_vocab);
  settings.batch = batch_sizes(deck, num_ranks);
  settings.seed = static_cast<std::uint64_t>(deck.run.seed);
  settings.steps = total_steps(deck, num_samples, settings.batch.global_batch);
  const int stage = static_cast<int>(deck.zero.stage);
  settings.staged = deck.checkpoint.every > 0 && deck.checkpoint.async;
  settings.staging_mib = deck.checkpoint.staging_mib;
  settings.zero = {.stage = stage,
                   .accumulation = zero::accumulation_of(deck.zero.accumulation, stage),
                   .micro_steps = settings.batch.micro_steps,
                   .overlap = deck.zero.overlap,
                   .prefetch_units = static_cast<int>(deck.zero.prefetch_units)};
  settings.optim = {deck.optim.kind, deck.optim.betas[0],     deck.optim.betas[1],
                    deck.optim.eps,  deck.optim.weight_decay, deck.optim.momentum};
  settings.step = {.seq = settings.model.seq,
                   .micro_steps = settings.batch.micro_steps,
                   .grad_clip = deck.train.grad_clip,
                   .on_nonfinite = deck.train.on_nonfinite == "skip" ? OnNonFinite::skip : OnNonFinite::stop,
                   .max_skips = deck.train.max_skips,
                   .check_every = deck.run.check_every,
                   .loss_scaler = loss_scaler_of(deck.train),
                   .schedule = schedule_of(deck, settings.batch.rate_factor, settings.steps)};
  return settings;
}

template <class Scalar>
void Assembly::store_weights_as(const Settings& settings, MemoryLedger& ledger) {
  auto model = model::make_model<Scalar>(settings.model);
  auto state = std::make_unique<zero::ShardedStateOf<Scalar>>(model->parameters(), comm_, settings.zero, ledger);
  network_ = std::make_unique<model::NetworkOf<Scalar>>(std::move(model), *state);
  state_ = std::move(state);
}

Assembly::Assembly(const Settings& settings, dist::Communicator& comm, MemoryLedger& ledger) : comm_(comm) {
  with_stored_type(settings.precision, [&](auto type) { store_weights_as<decltype(type)>(settings, ledger); });
  loader_ = std::make_unique<BatchLoader>(settings.batch.micro_batch, settings.model.seq, ledger,
                                          settings.batch.micro_steps);
  std::vector<UnitRange> ranges;
  for (const auto& owned : state_->update_ranges()) ranges.push_back(owned.range);
  optimizer_ = optim::make_optimizer(settings.optim, optim::segments_of(network_->parameters(), ranges), ledger);
  network_->reserve(ledger, settings.batch.micro_batch);
  ledger.book(Memory::workspace, "matrix products", kernels::product_workspace());
  if (!settings.staged) return;
  staging_ = std::make_unique<Staging>(owned_state(parts()), settings.staging_mib, ledger);
}

}  // namespace kozero::train
