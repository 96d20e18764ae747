// SPDX-FileCopyrightText: The KoZeRO authors
// SPDX-License-Identifier: Apache-2.0
// check.cpp: checks between keys, most of them from two tables, and the text of a refusal.
#include <fmt/format.h>
#include <algorithm>
#include <bit>
#include <cmath>
#include <numeric>
#include <type_traits>

#include <kozero/core/architecture.hpp>
#include <kozero/core/mixture.hpp>
#include <kozero/core/presets.hpp>
#include <kozero/distributed/communicator.hpp>
#include "io/deck/check.hpp"
#include "io/deck/schema.hpp"

namespace kozero::io {

namespace {

constexpr std::size_t kLongest = 100;  // characters of a user's key and value that a message repeats

std::string shortened(const std::string& text) {
  return text.size() <= kLongest ? text : text.substr(0, kLongest) + "...";
}

/// Lists of keys of which exactly one must be given.
const std::vector<std::vector<std::string>> kAlternatives = {
    {"data.text", "data.source", "data.tokens", "data.synthetic"},
    {"run.steps", "run.epochs", "run.curriculum"},
    {"train.global_batch", "train.accumulate"},
};

/// A key that is read only if the key `choice` has one of these values (as TOML).
struct ReadWhere {
  std::string key;
  std::string choice;
  std::vector<std::string> values;
};

using Part = Architecture::Part;

/// A key of the model that is read only by the architectures for which holds(architecture) is true.
template <class Holds>
ReadWhere where_architecture(const std::string& key, const Holds& holds) {
  ReadWhere rule{key, "model.arch", {}};
  for (const auto& name : architectures_where(holds)) rule.values.push_back(toml_string(name));
  return rule;
}

/// Three digits, not below the number.
std::string rounded_up(double number) {
  constexpr double kLargestError = 0.005;  // of three digits
  return fmt::format("{:.3g}", number * (1.0 + kLargestError));
}

bool is_decoder(const Architecture& architecture) { return architecture.decoder; }
bool is_rotary(const Architecture& architecture) { return architecture.rotary; }

const std::vector<ReadWhere> kReadWhere = {
    where_architecture("model.layers", is_decoder),
    where_architecture("model.heads", is_decoder),
    where_architecture("model.vocab_block", is_decoder),
    where_architecture("zero.bucket_mib", is_decoder),
    where_architecture("train.seq", is_decoder),
    where_architecture("model.kv_heads", is_rotary),
    where_architecture("model.head_dim", is_rotary),
    where_architecture("model.rope_theta", is_rotary),
    where_architecture("model.rope_scaling", is_rotary),
    where_architecture("model.bias", [](const auto& each) { return each.biased; }),
    where_architecture("model.qkv_bias", [](const auto& each) { return each.qkv_bias != Part::never; }),
    where_architecture("model.qk_norm", [](const auto& each) { return each.qk_norm != Part::never; }),
    where_architecture("model.dropout", [](const auto& each) { return each.dropout; }),
    where_architecture("model.lora.rank", is_decoder),
    {"data.tokenizer", "data.synthetic", {"false"}},
    {"data.pack", "data.synthetic", {"false"}},
    {"data.mask_documents", "data.synthetic", {"false"}},
    {"train.base_ranks", "train.batch_scaling", {"\"linear\"", "\"sqrt\""}},
    {"zero.offload_parameters", "zero.stage", {"3"}},
    {"zero.shard_group", "zero.stage", {"1", "2", "3"}},
    {"train.loss_scale", "train.precision", {"\"fp16\""}},
    {"train.loss_scale_window", "train.precision", {"\"fp16\""}},
    {"train.loss_scale_window", "train.loss_scale", {"0"}},
    {"optim.betas", "optim.kind", {"\"adamw\""}},
    {"optim.eps", "optim.kind", {"\"adamw\""}},
    {"optim.momentum", "optim.kind", {"\"sgd\""}},
    {"optim.decay_steps", "optim.schedule", {"\"linear\"", "\"cosine\"", "\"wsd\""}},
    {"optim.min_lr", "optim.schedule", {"\"linear\"", "\"cosine\"", "\"wsd\""}},
    {"log.timeline_from", "log.timeline", {"\"rank0\"", "\"all\""}},
    {"log.timeline_steps", "log.timeline", {"\"rank0\"", "\"all\""}},
};

bool holds(const std::vector<std::string>& values, const std::string& value) {
  return std::find(values.begin(), values.end(), value) != values.end();
}

bool on_command_line(const Deck& deck, const std::string& key) {
  return deck.is_set(key) && deck.origins.at(key) == kCommandLine;
}

std::string text_of(const Deck& deck, const std::string& key) { return text_in(deck, *find_row(key)); }

/// Gives `loser` its default and adds a note that the command line's `winner` won.
void replace(Deck& deck, const std::string& winner, const std::string& loser) {
  deck.notes.push_back(std::string(kCommandLine) + ": " + shortened(winner + " = " + text_of(deck, winner)) +
                       " wins over " + shortened(loser + " = " + text_of(deck, loser)) + " (" + origin_of(deck, loser) +
                       ")");
  reset(deck, *find_row(loser));
}

void check_alternatives(Deck& deck, const std::vector<std::string>& keys) {
  std::vector<std::string> in_file;
  std::vector<std::string> given;
  for (const auto& key : keys) {
    if (!holds_default(deck, *find_row(key))) (on_command_line(deck, key) ? given : in_file).push_back(key);
  }
  if (given.empty()) {
    given = in_file;
  } else {
    for (const auto& key : in_file) replace(deck, given.front(), key);
  }
  if (given.empty()) refuse_missing(deck, keys.front(), "accepted is one of " + joined(keys));
  if (given.size() == 1) return;
  refuse_value(deck, given[1],
               "contradicts " + given[0] + " = " + text_of(deck, given[0]) + " (" + origin_of(deck, given[0]) +
                   "); accepted is one of " + joined(keys) + "; remove the others");
}

bool is_fulfilled(const Deck& deck, const ReadWhere& rule) { return holds(rule.values, text_of(deck, rule.choice)); }

void check_read(Deck& deck, const ReadWhere& rule) {
  if (is_fulfilled(deck, rule) || holds_default(deck, *find_row(rule.key))) return;
  if (on_command_line(deck, rule.choice) && !on_command_line(deck, rule.key)) {
    replace(deck, rule.choice, rule.key);
  } else {
    refuse_value(deck, rule.key,
                 "nothing reads it if " + beside(deck, rule.choice) + "; accepted only with " + rule.choice + " = " +
                     joined(rule.values));
  }
}

/// zero.offload_dir and zero.offload_mib are read only if optimizer state or parameters are offloaded.
void check_offload(Deck& deck) {
  if (deck.zero.offload_optimizer != "none" || deck.zero.offload_parameters != "none") return;
  for (const char* key : {"zero.offload_dir", "zero.offload_mib"}) {
    if (holds_default(deck, *find_row(key))) continue;
    if (on_command_line(deck, key) || !on_command_line(deck, "zero.offload_optimizer")) {
      refuse_value(deck, key,
                   "nothing reads it if " + beside(deck, "zero.offload_optimizer") +
                       "; accepted only with zero.offload_optimizer or zero.offload_parameters");
    }
    replace(deck, "zero.offload_optimizer", key);
  }
}

/// The keys of [model.lora] are read only with a rank, given or that of a PEFT folder, and adapters leave nothing to
/// freeze.
void check_lora(const Deck& deck) {
  const bool has_adapters = deck.model.lora.rank > 0 || deck.model.lora.init != "none";
  for (const std::string& name : names_in("model.lora")) {
    const std::string key = "model.lora." + name;
    if (has_adapters || !deck.is_set(key) || holds_default(deck, *find_row(key))) continue;
    refuse_value(deck, key, "nothing reads it without model.lora.rank; accepted there: integer >= 1");
  }
  if (!has_adapters && deck.model.base_dtype != "none") {
    refuse_value(deck, "model.base_dtype",
                 "only the base of adapters is quantized; accepted there: none, or a model.lora.rank");
  }
  if (!has_adapters || deck.optim.freeze.empty()) return;
  refuse_value(deck, "optim.freeze",
               "with model.lora.rank only adapters are trained; model.lora.targets says beside which linear maps");
}

/// Log lines, the printed commands that resume a run, and scripts contain the name of a run's folder.
void check_run_dir(const Deck& deck) {
  if (escaped(deck.run.dir) == deck.run.dir) return;
  refuse_value(deck, "run.dir", "it holds a control character; accepted: a path without control characters");
}

void need(const Deck& deck, const std::string& key) {
  if (deck.is_set(key) || deck.model.preset != "none" || deck.model.init != "random") return;
  refuse_missing(deck, key, "give it, or model.preset for a published shape");
}

void check_shape_given(const Deck& deck) {
  need(deck, "model.dim");
  if (!architecture(deck.model.arch).decoder) return need(deck, "model.ffn");
  for (const char* key : {"model.layers", "model.heads", "model.seq"}) need(deck, key);
}

void check_heads(const Deck& deck) {
  const ModelKeys& model = deck.model;
  if (model.heads == 0) return;
  if (model.dim % model.heads != 0 && model.head_dim == 0) {
    refuse_value(deck, "model.dim", "accepted are multiples of " + beside(deck, "model.heads"));
  }
  if (model.kv_heads != 0 && model.heads % model.kv_heads != 0) {
    refuse_value(deck, "model.kv_heads", "accepted are divisors of " + beside(deck, "model.heads"));
  }
  const std::int64_t head_dim = model.head_dim != 0 ? model.head_dim : model.dim / model.heads;
  if (architecture(model.arch).rotary && head_dim % 2 != 0) {
    refuse_value(deck, model.head_dim != 0 ? "model.head_dim" : "model.dim",
                 "heads of " + std::to_string(head_dim) + " channels; accepted are even ones, since RoPE turns pairs");
  }
}

void check_arch(const Deck& deck) {
  const ModelKeys& model = deck.model;
  const Architecture& arch = architecture(model.arch);
  const Preset* preset = find_preset(model.preset);
  if (preset != nullptr && !preset->is_for_any_arch() && preset->family.arch != model.arch) {
    refuse_value(deck, "model.preset", "another architecture's; accepted are presets of " + beside(deck, "model.arch"));
  }
  if (!arch.decoder && model.preset != "none") {
    refuse_value(deck, "model.preset",
                 beside(deck, "model.arch") + " has no presets; accepted are model.dim and model.ffn");
  }
  if (!arch.decoder && !deck.data.synthetic) {
    refuse_value(deck, "model.arch", "it makes its own data; accepted with it is data.synthetic = true");
  }
}

/// Parts that an architecture always has cannot be turned off.
void check_parts(const Deck& deck) {
  const Architecture& arch = architecture(deck.model.arch);
  const auto refuse_without = [&](const std::string& key) {
    refuse_value(deck, key, beside(deck, "model.arch") + " has it; accepted are true, or model.arch = \"llama\"");
  };
  if (arch.qkv_bias == Part::always && !deck.model.qkv_bias) refuse_without("model.qkv_bias");
  if (arch.qk_norm == Part::always && !deck.model.qk_norm) refuse_without("model.qk_norm");
}

/// Refuses the value of a column in a table of data.source.
[[noreturn]] void refuse_source(const Deck& deck, std::size_t i, const std::string& column, const std::string& why) {
  SourceKeys keys = deck.data.source[i];
  const auto& columns = columns_of(keys);
  const auto found = std::ranges::find_if(columns, [&](const auto& each) { return each.name == column; });
  refuse(origin_of(deck, "data.source"),
         fmt::format("data.source[{}].{} = {}", i, column, toml_text(found->value_in(keys))), why);
}

void check_source_names(const Deck& deck) {
  const DataKeys& data = deck.data;
  for (std::size_t i = 0; i < data.source.size(); ++i) {
    if (escaped(data.source[i].name) != data.source[i].name) {
      refuse_source(deck, i, "name", "it holds a control character; accepted: a name without control characters");
    }
    for (std::size_t other = 0; other < i; ++other) {
      if (data.name_of_source(other) != data.name_of_source(i)) continue;
      const std::size_t named = data.source[i].name.empty() ? other : i;
      refuse_source(deck, named, "name",
                    fmt::format("data.source[{}] has this name; give each source another (the default is its number)",
                                named == i ? other : i));
    }
  }
}

bool has_weight(const SourceKeys& source) { return source.share() > 0; }

/// The weights of a mixture's sources: all have one, in one unit.
std::vector<double> checked_shares(const Deck& deck) {
  const auto& sources = deck.data.source;
  std::vector<double> shares;
  for (std::size_t i = 0; i < sources.size(); ++i) {
    const SourceKeys& source = sources[i];
    const char* const unit = sources.front().weight > 0 ? "weight" : "tokens";
    if (source.weight > 0 && source.tokens > 0) {
      refuse_source(deck, i, "tokens", "the source has a weight too; give one of weight, tokens");
    }
    if (!has_weight(source) || !has_weight(sources.front())) {
      const std::size_t without = has_weight(source) ? 0 : i;
      refuse(origin_of(deck, "data.source"), fmt::format("data.source[{}].weight", without),
             "missing; give every source a weight (or tokens), or none");
    }
    if ((source.weight > 0) != (sources.front().weight > 0)) {
      refuse_source(deck, i, source.weight > 0 ? "weight" : "tokens",
                    fmt::format("data.source[0] has {}; give every source a weight, or every source tokens", unit));
    }
    if (source.repeat != 1) {
      refuse_source(deck, i, "repeat", fmt::format("the {} of the sources decides; leave repeat out", unit));
    }
    shares.push_back(source.share());
  }
  return shares;
}

/// Refuses weights of which one is too small for a sample in kMixtureSlots, and limits of epochs without weights.
void check_weights(const Deck& deck) {
  const auto& sources = deck.data.source;
  if (std::ranges::none_of(sources, has_weight)) {
    const auto limited = std::ranges::find_if(sources, [](const SourceKeys& source) { return source.epochs > 0; });
    if (limited == sources.end()) return;
    refuse_source(deck, static_cast<std::size_t>(limited - sources.begin()), "epochs",
                  "nothing reads it without weights; give every source a weight, or leave it out: repeat and "
                  "run.epochs give the passes");
  }
  const std::vector<double> shares = checked_shares(deck);
  const double sum = std::accumulate(shares.begin(), shares.end(), 0.0);
  if (!std::isfinite(sum)) refuse_source(deck, 0, "weight", "the sum of the weights is not finite; give smaller ones");
  const auto slots = mixture_slots(shares);
  for (std::size_t i = 0; i < slots.size(); ++i) {
    if (slots[i] > 0) continue;
    const bool in_tokens = sources[i].tokens > 0;
    const double least = least_weight(sum - shares[i]);
    refuse_source(deck, i, in_tokens ? "tokens" : "weight",
                  fmt::format("less than one sample of {}; give at least {}, or leave the source out", kMixtureSlots,
                              in_tokens ? fmt::format("{:.0f}", std::ceil(least)) : rounded_up(least)));
  }
}

void check_vocabulary(const Deck& deck) {
  const bool reads_text = deck.data.has_text();
  if (reads_text && deck.data.tokenizer == "bytes" && deck.is_set("model.vocab") && deck.model.vocab < 256) {
    refuse_value(deck, "model.vocab", "data.tokenizer = \"bytes\" has 256 ids; accepted are 256 or more");
  }
  if (!reads_text || deck.data.tokenizer != "bpe") return;
  need(deck, "model.vocab");
  if (deck.is_set("model.vocab") && deck.model.vocab < 257) {
    refuse_value(deck, "model.vocab", "data.tokenizer = \"bpe\" learns beyond the 256 bytes; accepted are 257 or more");
  }
}

void check_schedule(const Deck& deck) {
  const OptimKeys& optim = deck.optim;
  if (optim.min_lr > optim.lr) refuse_value(deck, "optim.min_lr", "accepted are at most " + beside(deck, "optim.lr"));
  if (optim.schedule == "wsd" && optim.decay_steps == 0) {
    refuse_missing(deck, "optim.decay_steps",
                   "with optim.schedule = \"wsd\" accepted: " + accepted_values(*find_row("optim.decay_steps")));
  }
}

void check_ranks(const Deck& deck) {
  if (deck.comm.backend == "self" && deck.run.ranks > 1) {
    std::vector<std::string> others;
    for (const std::string& name : distributed::backend_names()) {
      if (name != "self") others.push_back(toml_string(name));
    }
    refuse_value(deck, "comm.backend",
                 "it is for one rank; accepted with " + beside(deck, "run.ranks") + " are " + joined(others));
  }
  if (deck.zero.accumulation == "local" && deck.zero.stage >= 2) {
    refuse_value(deck, "zero.accumulation",
                 beside(deck, "zero.stage") + " holds no whole gradient; accepted is \"ordered\"");
  }
}

void check_types(const Deck& deck) {
  const auto scale = static_cast<std::uint64_t>(deck.train.loss_scale);
  if (scale != 0 && !std::has_single_bit(scale)) {
    refuse_value(deck, "train.loss_scale",
                 "other factors than powers of two round; accepted are 0, 1, 2, 4, 8, ... 16777216");
  }
}

void check_sequences(const Deck& deck) {
  if (deck.model.seq == 0 || deck.train.seq <= deck.model.seq) return;
  refuse_value(deck, "train.seq", "accepted: at most " + beside(deck, "model.seq") + ", the model's positions");
}

void check_evaluation(const Deck& deck) {
  if (deck.train.eval_every > 0 && deck.data.val_fraction == 0) {
    refuse_value(deck, "train.eval_every",
                 "no data to evaluate on; accepted is 0 if " + beside(deck, "data.val_fraction"));
  }
}

void check_checkpoints(const Deck& deck) {
  if (deck.checkpoint.every_minutes > 0 && deck.checkpoint.every == 0) {
    refuse_value(deck, "checkpoint.every_minutes", "accepted is 0 if " + beside(deck, "checkpoint.every"));
  }
  if (!deck.checkpoint.keep_best) return;
  const auto refuse_where = [&](const std::string& key) {
    refuse_value(deck, "checkpoint.keep_best", "accepted is false if " + beside(deck, key));
  };
  if (deck.checkpoint.every == 0) refuse_where("checkpoint.every");
  if (deck.data.val_fraction == 0) refuse_where("data.val_fraction");
  if (!architecture(deck.model.arch).decoder) refuse_where("model.arch");
}

}  // namespace

std::string beside(const Deck& deck, const std::string& key) {
  return key + " = " + text_in(deck, *find_row(key)) + (deck.is_set(key) ? "" : " (default)");
}

void refuse(const std::string& where, const std::string& what, const std::string& why) {
  const std::string subject = what.empty() ? "" : shortened(what) + ": ";
  throw Error(Failure::deck, where + ": " + subject + why);
}

void refuse_value(const Deck& deck, const std::string& key, const std::string& why) {
  refuse(origin_of(deck, key), key + " = " + text_in(deck, *find_row(key)), why);
}

void refuse_missing(const Deck& deck, const std::string& key, const std::string& why) {
  refuse(deck.source, key, "missing; " + why);
}

std::string origin_of(const Deck& deck, const std::string& key) {
  const auto origin = deck.origins.find(key);
  return origin == deck.origins.end() ? deck.source : origin->second;
}

std::string did_you_mean(const std::string& given, const std::vector<std::string>& names) {
  const std::string nearest = nearest_name(given, names.data(), names.data() + names.size());
  return nearest.empty() ? "" : "; did you mean " + nearest + "?";
}

bool is_read(const Deck& deck, const std::string& key) {
  return std::ranges::all_of(kReadWhere,
                             [&](const ReadWhere& rule) { return rule.key != key || is_fulfilled(deck, rule); });
}

void check_deck(Deck& deck) {
  for (const auto& keys : kAlternatives) check_alternatives(deck, keys);
  for (const auto& rule : kReadWhere) check_read(deck, rule);
  check_offload(deck);
  check_run_dir(deck);
  check_arch(deck);
  check_parts(deck);
  check_lora(deck);
  check_shape_given(deck);
  check_heads(deck);
  check_source_names(deck);
  check_weights(deck);
  check_vocabulary(deck);
  check_schedule(deck);
  check_ranks(deck);
  check_types(deck);
  check_evaluation(deck);
  check_checkpoints(deck);
  check_sequences(deck);
  check_growth(deck);
  if (deck.whole == nullptr) check_curriculum(deck);
}

}  // namespace kozero::io
