// SPDX-FileCopyrightText: The KoZeRO authors
// SPDX-License-Identifier: Apache-2.0
// settings.cpp: numbers derived from the deck and the rank count.
#include <algorithm>
#include <cmath>
#include <filesystem>
#include <type_traits>

#include <kozero/core/architecture.hpp>
#include <kozero/core/device.hpp>
#include <kozero/core/error.hpp>
#include <kozero/core/random.hpp>
#include <kozero/data/corpus_epoch.hpp>
#include <kozero/train/settings.hpp>
#include "io/deck/check.hpp"
#include "io/deck/schema.hpp"
#include "io/posix/readable.hpp"
#include "io/posix/system_resources.hpp"

namespace kozero::train {
namespace {

std::int64_t ceil_div(std::int64_t a, std::int64_t b) { return (a + b - 1) / b; }

constexpr std::int64_t kMostDefaultWarmup = 1000;

std::int64_t clamped_warmup(const io::Deck& deck, std::int64_t steps) {
  if (deck.optim.warmup_steps == io::kNotGiven) return std::min(steps / 20, kMostDefaultWarmup);
  return std::min(deck.optim.warmup_steps, steps);
}

std::int64_t clamped_decay(const io::Deck& deck, std::int64_t steps) {
  return std::min(deck.optim.decay_steps, steps - clamped_warmup(deck, steps));
}

model::Recompute recompute_of(const io::WordOrNumber& value) {
  if (value == "none") return {};
  if (value == "selective") return {.blocks = 1, .keeps_attention = true};
  if (value == "full") return {.blocks = 1};
  return {.blocks = static_cast<int>(value.number())};
}

MemorySource::Kind offload_kind(const io::Deck& deck, const char* key, const std::string& name) {
  const bool on_gpus = runs_on_gpus(deck);
  using Kind = MemorySource::Kind;
  if (name == "none") return Kind::device;
  const Kind kind = name == "host" ? Kind::host : Kind::disk;
  if (kind == (on_gpus ? Kind::host : Kind::disk)) return kind;
  io::refuse_value(deck, key,
                   on_gpus ? "a GPU reaches the host's memory and no file; accepted are none, host"
                           : "the arrays of a run on the host lie in its memory already; accepted are none, disk");
}

/// Below stage 3 every rank reads all weights in each micro-step, so they are not offloaded.
Offload offload_of(const io::Deck& deck) {
  Offload offload;
  offload.optimizer = offload_kind(deck, "zero.offload_optimizer", deck.zero.offload_optimizer);
  if (deck.zero.stage == 3) {
    offload.parameters = offload_kind(deck, "zero.offload_parameters", deck.zero.offload_parameters);
  }
  offload.folder = deck.zero.offload_dir.empty() ? io::nearest_folder(deck.run.dir) : deck.zero.offload_dir;
  offload.bytes = deck.zero.offload_mib << 20;
  return offload;
}

/// Sets the member to a key's value; a missing extent (0) leaves the member unchanged.
void take(std::int64_t& member, io::DeckValue key) {
  const std::int64_t value = *std::get<std::int64_t*>(key);
  if (value > 0) member = value;
}
void take(float& member, io::DeckValue key) { member = static_cast<float>(*std::get<double*>(key)); }
void take(model::RopeScaling& member, io::DeckValue key) {
  const io::RopeScalingKeys& keys = *std::get<io::RopeScalingKeys*>(key);
  member = {static_cast<float>(keys.factor), static_cast<float>(keys.low_freq_factor),
            static_cast<float>(keys.high_freq_factor), keys.original_seq};
}
template <class T>
void take(T& member, io::DeckValue key) {
  member = *std::get<T*>(key);
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

/// model::resolved; an error about a value that the deck does not give also names the value's source.
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

/// Blocks of a unit: the largest number whose gradients fit `bucket_mib`, reduced to the smallest number that gives as
/// many units. With 12 blocks of 12 MiB and 61 MiB, 5 blocks fit; 4 also give 3 units.
/// If groups of `group` blocks are recomputed, a unit is a whole number of groups, or a group a whole number of units.
std::int64_t blocks_in_unit(model::Config config, double bucket_mib, std::int64_t group) {
  if (!architecture(config.arch).decoder || bucket_mib == 0.0) return 1;
  const std::int64_t layers = config.layers;
  config.layers = 1;
  config.vocab_block = 0;
  config.freeze.clear();
  config.lora = {};
  const auto extent = model::make_model<float>(config)->parameters().slot_extent(kBlockSlot);
  const double mib = static_cast<double>(extent) * sizeof(float) / kMiB;
  const auto most = static_cast<std::int64_t>(std::clamp(bucket_mib / mib, 1.0, static_cast<double>(layers)));
  if (group <= 0 || group >= layers) group = 1;
  if (most < group) {
    std::int64_t blocks = most;
    while (group % blocks != 0) --blocks;
    return blocks;
  }
  const std::int64_t groups = (layers + group - 1) / group;
  const std::int64_t units = (groups + most / group - 1) / (most / group);
  return (groups + units - 1) / units * group;
}

/// Refuses patterns of frozen tensors that match none or all of them, and targets of adapters that match none, with the
/// key's place in the deck.
void require_trainable(const io::Deck& deck, const model::Config& config) {
  const bool has_adapters = config.lora.rank > 0;
  if (config.freeze.empty() && !has_adapters) return;
  try {
    static_cast<void>(model::make_model<float>(config));
  } catch (const Error& problem) {
    const std::string text = problem.what();
    io::refuse_value(deck, has_adapters ? "model.lora.targets" : "optim.freeze", text.substr(text.find(": ") + 2));
  }
}

/// Makes the path valid from any working directory. A path that TOML cannot hold stays unchanged.
void make_absolute(std::string& path) {
  const std::string whole = std::filesystem::absolute(path).lexically_normal().string();
  if (io::utf8_prefix(whole) == whole.size()) path = whole;
}

/// Makes the paths of data, tokenizer and other inputs valid from any working directory.
void make_paths_absolute(io::Deck& deck) {
  for (auto& path : deck.data.text) make_absolute(path);
  for (auto& source : deck.data.source) {
    for (auto& path : source.text) make_absolute(path);
  }
  for (auto& path : deck.data.tokens) make_absolute(path);
  if (deck.data.has_tokenizer_file()) make_absolute(deck.data.tokenizer);
  if (deck.run.tuning != "none") make_absolute(deck.run.tuning);
  if (deck.model.lora.init != "none") make_absolute(deck.model.lora.init);
  if (deck.model.init != kRandom) make_absolute(deck.model.init);
  if (!deck.zero.offload_dir.empty()) make_absolute(deck.zero.offload_dir);
}

model::Lora lora_of(const io::LoraKeys& keys) {
  return {keys.rank, static_cast<float>(keys.alpha), static_cast<float>(keys.dropout), keys.targets, keys.rslora};
}

BaseType base_type_of(const std::string& name) {
  if (name == "int8") return BaseType::int8;
  return name == "nf4" ? BaseType::nf4 : BaseType::as_weights;
}

}  // namespace

std::int64_t seq_of(const io::Deck& deck, const model::Config& model) {
  if (deck.train.seq <= model.seq) return deck.train.seq > 0 ? deck.train.seq : model.seq;
  io::refuse_value(deck, "train.seq", "accepted: at most " + std::to_string(model.seq) + ", the model's positions");
}

StepRange steps_of_lesson(const io::Deck& deck, int num_ranks) {
  if (deck.whole == nullptr) return {};
  StepRange range;
  for (std::size_t i = 0; i <= deck.lesson; ++i) {
    const io::LessonKeys& keys = deck.run.curriculum[i];
    range.first = range.last;
    if (keys.steps > 0) {
      range.last += keys.steps;
    } else {
      const io::Deck lesson = io::deck_of_lesson(*deck.whole, i);
      const std::int64_t tokens =
          batch_sizes(lesson, num_ranks).global_batch * seq_of(lesson, model_config(lesson, lesson.model.vocab));
      range.last += ceil_div(keys.tokens, tokens);
    }
  }
  return range;
}

std::size_t lesson_after(const io::Deck& whole, int num_ranks, std::int64_t step) {
  const std::size_t last = whole.run.curriculum.size() - 1;
  std::size_t lesson = 0;
  while (lesson < last && steps_of_lesson(io::deck_of_lesson(whole, lesson), num_ranks).last <= step) ++lesson;
  return lesson;
}

std::int64_t total_steps(const io::Deck& deck, std::int64_t num_samples, std::int64_t global_batch) {
  if (deck.run.epochs == 0) return deck.run.steps;
  return std::max<std::int64_t>(1, deck.run.epochs * ceil_div(num_samples, global_batch));
}

optim::ScheduleConfig schedule_of(const io::Deck& deck, double rate_factor, std::int64_t steps) {
  return {.kind = deck.optim.schedule,
          .lr = deck.optim.lr * rate_factor,
          .min_lr = deck.optim.min_lr * rate_factor,
          .warmup_steps = clamped_warmup(deck, steps),
          .decay_steps = clamped_decay(deck, steps),
          .total_steps = steps};
}

distributed::CommunicatorOptions communicator_options(const io::Deck& deck) {
  const int held = std::max(recompute_of(deck.train.recompute).blocks, 1);
  const bool has_groups = deck.zero.stage > 0 && deck.zero.shard_group != "all";
  return {.timeout_s = deck.comm.timeout_s,
          .under_way = zero::collectives_under_way(static_cast<int>(deck.zero.prefetch_units) + held - 1),
          .deterministic = deck.run.deterministic,
          .exact = deck.comm.exact,
          .throttle_gbit = deck.comm.throttle_gbit,
          .latency_us = deck.comm.latency_us,
          .communicators = has_groups ? 3 : 1};
}

bool runs_on_gpus(const io::Deck& deck) { return deck.plans_for_gpus || !kHostIsDevice; }

int assumed_ranks_per_node(const io::Deck& deck) {
  constexpr int kUsual = 8;  // GPUs per server
  return deck.ranks_per_node > 0 ? deck.ranks_per_node : kUsual;
}

int ranks_per_group(const io::Deck& deck, int num_ranks) {
  const io::WordOrNumber& group = deck.zero.shard_group;
  if (group == "all") return num_ranks;
  const bool by_node = group == "node";
  const int ranks = std::min(by_node ? assumed_ranks_per_node(deck) : static_cast<int>(group.number()), num_ranks);
  if (num_ranks % ranks == 0) return ranks;
  const std::string value = by_node ? "\"node\", " + std::to_string(ranks) + " ranks" : group.text();
  throw Error(Failure::deck, "zero.shard_group = " + value + ": " + std::to_string(num_ranks) +
                                 " ranks are no whole number of such groups; give a divisor of the number of ranks, or "
                                 "\"all\"");
}

BatchSizes batch_sizes(const io::Deck& deck, int num_ranks) {
  BatchSizes sizes{.global_batch = deck.train.global_batch, .micro_batch = deck.train.micro_batch};
  sizes.rate_factor = optim::scaled_rate(deck.train.batch_scaling, 1.0, num_ranks, deck.train.base_ranks);
  if (deck.train.batch_scaling != "none") {
    const double growth = static_cast<double>(num_ranks) / static_cast<double>(deck.train.base_ranks);
    sizes.global_batch = std::max<std::int64_t>(1, std::llround(static_cast<double>(sizes.global_batch) * growth));
  }
  if (deck.train.accumulate > 0) sizes.global_batch = num_ranks * deck.train.micro_batch * deck.train.accumulate;
  sizes.micro_batch = std::min(deck.train.micro_batch, sizes.global_batch);
  sizes.micro_steps = static_cast<int>(ceil_div(ceil_div(sizes.global_batch, sizes.micro_batch), num_ranks));
  return sizes;
}

model::Config model_config(const io::Deck& deck, std::int64_t data_vocab) {
  const io::ModelKeys& keys = deck.model;
  model::Config config;
  config.arch = keys.arch;
  if (keys.preset != "none") config = model::with_preset(config, keys.preset);
  io::Deck given = deck;
  model::for_each_field(config, [&](const model::Field& field, auto& member) {
    const io::DeckRow& row = *io::find_row(std::string("model.") + field.name);
    if (keys.preset == "none" || deck.is_set(row.key)) take(member, row.value_in(given));
  });
  if (keys.vocab == 0 && keys.preset == "none") config.vocab = std::max<std::int64_t>(data_vocab, 1);
  if (architecture(config.arch).decoder && config.vocab < data_vocab) {
    const bool given_here = keys.vocab > 0;
    throw Error(Failure::deck,
                (given_here ? "model.vocab = " : "model.preset = \"" + keys.preset + "\" has vocabulary ") +
                    std::to_string(config.vocab) + ": the data's tokenizer has " + std::to_string(data_vocab) +
                    " tokens; " + (given_here ? "leave the key out, or give at least that" : "give model.vocab"));
  }
  config.vocab_block = keys.vocab_block;
  config.dropout = static_cast<float>(keys.dropout);
  config.seed = static_cast<std::uint64_t>(deck.run.seed);
  config = resolved_for(deck, config);
  config.freeze = deck.optim.freeze;
  config.lora = lora_of(keys.lora);
  require_trainable(deck, config);
  config.blocks_in_unit = blocks_in_unit(config, deck.zero.bucket_mib, recompute_of(deck.train.recompute).blocks);
  return config;
}

int units_held(const Settings& settings) {
  const int blocks = settings.recompute.blocks;
  const bool in_groups = settings.use == Use::training && blocks > 0 && blocks < settings.model.layers;
  return in_groups ? std::max(blocks / static_cast<int>(settings.model.blocks_in_unit), 1) : 1;
}

std::string schedule_note(const io::Deck& deck, std::int64_t steps) {
  std::string clamped;
  const auto compare = [&](const char* key, std::int64_t given, std::int64_t used) {
    if (given <= used) return;
    clamped += (clamped.empty() ? "optim." : ", optim.") + std::string(key) + " = " + std::to_string(given) + " (" +
               std::to_string(used) + " used)";
  };
  compare("warmup_steps", deck.optim.warmup_steps, clamped_warmup(deck, steps));
  compare("decay_steps", deck.optim.decay_steps, clamped_decay(deck, steps));
  return clamped.empty() ? "" : clamped + ": more than the run's " + std::to_string(steps) + " steps allow";
}

Settings settings_of(const io::Deck& deck, int num_ranks, std::int64_t data_vocab, std::int64_t num_samples) {
  Settings settings;
  settings.precision = precision_of(deck.train.precision);
  settings.comm = communicator_options(deck);
  settings.model = model_config(deck, data_vocab);
  settings.batch = batch_sizes(deck, num_ranks);
  settings.masks_documents = deck.data.mask_documents;
  settings.seed = settings.order_seed = static_cast<std::uint64_t>(deck.run.seed);
  if (deck.lesson > 0) settings.order_seed = stream_key(settings.seed, "lesson." + std::to_string(deck.lesson));
  const StepRange lesson_steps = steps_of_lesson(deck, num_ranks);
  const std::int64_t all_steps =
      deck.whole == nullptr ? total_steps(deck, num_samples, settings.batch.global_batch) : lesson_steps.last;
  settings.steps = all_steps;
  settings.samples.steps_before = lesson_steps.first;
  constexpr std::int64_t kMostEpochs = 1 << 16;  // of a lesson, with streams of their own
  settings.samples.streams = kMostEpochs * static_cast<std::int64_t>(deck.lesson);
  if (deck.data.grow && num_samples > 0) {
    const data::CorpusEpoch epoch = data::corpus_epoch_of(deck.corpus);
    settings.samples = {epoch.steps_before, epoch.epoch};
    settings.steps = std::min(all_steps, epoch.steps_before + ceil_div(num_samples, settings.batch.global_batch));
  }
  const int stage = static_cast<int>(deck.zero.stage);
  settings.ranks_per_group = stage == 0 ? num_ranks : ranks_per_group(deck, num_ranks);
  settings.on_gpus = runs_on_gpus(deck);
  settings.offload = offload_of(deck);
  const bool on_disk = settings.offload.uses(MemorySource::Kind::disk);  // then memory has no room for a copy
  settings.staged = deck.checkpoint.every > 0 && deck.checkpoint.async && !on_disk;
  settings.staging_mib = deck.checkpoint.staging_mib;
  settings.recompute = recompute_of(deck.train.recompute);
  settings.zero = {.stage = stage,
                   .accumulation = zero::accumulation_of(deck.zero.accumulation, stage),
                   .micro_steps = settings.batch.micro_steps,
                   .overlap = deck.zero.overlap,
                   .prefetch_units = static_cast<int>(deck.zero.prefetch_units),
                   .base = base_type_of(deck.model.base_dtype)};
  settings.optim = {deck.optim.kind,         deck.optim.betas[0], deck.optim.betas[1],   deck.optim.eps,
                    deck.optim.weight_decay, deck.optim.momentum, deck.optim.layer_decay};
  settings.step = {.seq = seq_of(deck, settings.model),
                   .steps_before = lesson_steps.first,
                   .micro_steps = settings.batch.micro_steps,
                   .grad_clip = deck.train.grad_clip,
                   .on_nonfinite = deck.train.on_nonfinite == "skip" ? OnNonFinite::skip : OnNonFinite::stop,
                   .max_skips = deck.train.max_skips,
                   .check_every = deck.run.check_every,
                   .loss_scaler = loss_scaler_of(deck.train),
                   .schedule = schedule_of(deck, settings.batch.rate_factor, all_steps - lesson_steps.first)};
  return settings;
}

io::Deck resolved_deck(io::Deck deck, const Settings& settings, const std::string& folder) {
  if (deck.whole != nullptr) deck = io::Deck(*deck.whole);
  const model::Config& config = settings.model;
  const bool decoder = architecture(config.arch).decoder;
  model::for_each_field(config, [&](const model::Field& field, const auto& value) {
    if constexpr (std::is_same_v<decltype(value), const std::int64_t&>) {
      if ((!decoder && !field.linear) || (field.rotary && !config.rotary)) return;
      const std::string key = std::string("model.") + field.name;
      std::int64_t& member = *std::get<std::int64_t*>(io::find_row(key)->value_in(deck));
      if (value == 0 || member == value) return;
      member = value;
      deck.origins[key] = "derived";
    }
  });
  make_paths_absolute(deck);
  deck.run.dir = folder;
  return deck;
}

}  // namespace kozero::train
