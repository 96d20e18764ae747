// SPDX-FileCopyrightText: The KoZeRO authors
// SPDX-License-Identifier: Apache-2.0
// deck.hpp: the input deck, every key with its type and default, and where each value came from.
//   defaults  <-  the deck's TOML file  <-  overrides "section.key=value" of the command line
// A deck with a curriculum gives a deck for each lesson.
// A Deck that read_deck returns is checked: types, ranges, contradictions. Properties of the machine and the data (the
// number of ranks, files) and a preset's shape are checked where they are used. schema.cpp says what each key means.
// If two keys exclude each other, one on the command line replaces one in the file, and a note says so.
#pragma once
#include <array>
#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

namespace kozero::io {

/// A word or a number: train.recompute = "full", or 4.
class WordOrNumber {
 public:
  WordOrNumber(const char* word) : word_(word) {}
  WordOrNumber(std::string word) : word_(std::move(word)) {}
  WordOrNumber(std::int64_t number) : number_(number) {}

  [[nodiscard]] bool is_number() const { return word_.empty(); }
  [[nodiscard]] std::int64_t number() const { return number_; }
  [[nodiscard]] const std::string& word() const { return word_; }
  /// "full", "4"
  [[nodiscard]] std::string text() const { return is_number() ? std::to_string(number_) : word_; }
  bool operator==(const WordOrNumber&) const = default;

 private:
  std::string word_;
  std::int64_t number_ = 0;
};

/// "Not given" for a number that may be 0.
inline constexpr std::int64_t kNotGiven = -1;

/// One [[curriculum]]: how long a lesson of training is, and what it has instead of the deck's values. A 0, kNotGiven,
/// "" or empty list is "not given".
struct LessonKeys {
  std::int64_t steps = 0;
  std::int64_t tokens = 0;
  std::vector<std::string> sources;
  std::int64_t seq = 0;
  std::int64_t global_batch = 0;
  std::int64_t micro_batch = 0;
  double lr = kNotGiven;
  double min_lr = kNotGiven;
  std::string schedule;
  std::int64_t warmup_steps = kNotGiven;
  std::int64_t decay_steps = 0;
  std::vector<std::string> freeze;
};

struct RunKeys {
  std::string dir;  ///< not given: runs/ and the deck's name
  std::int64_t seed = 1;
  std::int64_t steps = 0;   ///< 0: not given (epochs is given)
  std::int64_t epochs = 0;  ///< 0: not given (steps is given)
  std::vector<LessonKeys> curriculum;
  std::int64_t ranks = 1;
  std::int64_t threads = 0;  ///< 0: not given; the cores are shared evenly
  std::string bind = "auto";
  std::string device = "auto";
  std::string products = "fastest";
  std::string tuning = "none";  ///< none: products use the default algorithms
  bool deterministic = true;
  double max_minutes = 0;
  std::vector<std::string> stop_signals = {"SIGTERM", "SIGINT", "SIGUSR1", "SIGHUP"};
  std::int64_t check_every = 0;
};

/// Llama 3's scaling of the rotary angles, {type = "llama3", factor = ...}; factor 1 is "none".
struct RopeScalingKeys {
  double factor = 1;
  double low_freq_factor = 1;
  double high_freq_factor = 4;
  std::int64_t original_seq = 8192;
};

/// A 0 in layers ... seq means "not given": the value is the preset's or is derived.
/// [model.lora]: low-rank adapters of a frozen base.
struct LoraKeys {
  std::int64_t rank = 0;  ///< 0: not given, no adapters
  double alpha = 16;
  double dropout = 0;
  std::vector<std::string> targets = {"all-linear"};
  bool rslora = false;
  std::string init = "none";  ///< a PEFT folder
};

struct ModelKeys {
  std::string arch = "gpt2";
  std::string preset = "none";
  std::int64_t layers = 0;
  std::int64_t dim = 0;
  std::int64_t heads = 0;
  std::int64_t kv_heads = 0;
  std::int64_t head_dim = 0;
  std::int64_t ffn = 0;
  std::int64_t vocab = 0;
  std::int64_t seq = 0;
  bool tie_embeddings = true;  ///< not given: the architecture's default
  std::int64_t vocab_block = 0;
  double dropout = 0;
  double rope_theta = 10000;
  RopeScalingKeys rope_scaling;
  bool bias = true;
  bool qkv_bias = false;  ///< not given: whether the architecture always has it; the same for qk_norm
  bool qk_norm = false;
  double norm_eps = 1e-5;
  std::string init = "random";
  std::string base_dtype = "none";
  LoraKeys lora;
};

/// One [[data.source]].
struct SourceKeys {
  std::vector<std::string> text;
  std::string name;  ///< "": the source's number
  std::int64_t repeat = 1;
  double weight = 0;  ///< 0: not given, as tokens
  std::int64_t tokens = 0;
  std::int64_t epochs = 0;  ///< 0: no limit
  std::string filter;       ///< "": data.filter

  /// The source's part of a mixture, in any unit; 0 if it gives none.
  [[nodiscard]] double share() const { return weight > 0 ? weight : static_cast<double>(tokens); }
};

struct DataKeys {
  std::vector<std::string> text;
  std::vector<SourceKeys> source;
  std::vector<std::string> tokens;
  bool synthetic = false;
  std::string tokenizer = "bytes";
  std::string text_field = "text";
  std::string filter;  ///< "": none
  std::string chat_template = "none";
  std::string on_bad_document = "stop";
  bool deduplicate = false;
  double val_fraction = 0.05;
  std::string pack = "stream";
  bool mask_documents = false;
  bool grow = false;
  std::string cache;  ///< "": .tokens beside run.dir
  bool strict = false;

  [[nodiscard]] bool has_text() const { return !text.empty() || !source.empty(); }
  /// Whether the tokenizer is learned from the text: "chars", "bpe", "bpe:N".
  [[nodiscard]] bool learns_tokenizer() const {
    return tokenizer == "chars" || tokenizer == "bpe" || tokenizer.starts_with("bpe:");
  }
  /// Whether the tokenizer is in a file.
  [[nodiscard]] bool has_tokenizer_file() const { return tokenizer != "bytes" && !learns_tokenizer(); }
  /// Whether the sources have weights; of a checked deck.
  [[nodiscard]] bool is_mixture() const { return !source.empty() && source.front().share() > 0; }
  /// The source's name, by default its number.
  [[nodiscard]] std::string name_of_source(std::size_t i) const {
    return source[i].name.empty() ? std::to_string(i) : source[i].name;
  }
};

struct TrainKeys {
  std::int64_t global_batch = 0;  ///< 0: not given (accumulate is given)
  std::int64_t micro_batch = 4;
  std::int64_t accumulate = 0;  ///< 0: not given; derived from global_batch
  std::int64_t seq = 0;         ///< 0: model.seq
  std::int64_t base_ranks = 1;
  std::string batch_scaling = "none";
  std::string precision = "f32";
  WordOrNumber recompute = "none";
  double grad_clip = 1;
  std::string on_nonfinite = "stop";
  std::int64_t max_skips = 10;
  std::int64_t loss_scale = 0;  ///< 0: dynamic
  std::int64_t loss_scale_window = 2000;
  std::int64_t eval_every = 0;
  std::int64_t eval_batches = 20;
};

/// The defaults are those of language model pre-training (Brown et al. 2020, arXiv:2005.14165).
struct OptimKeys {
  std::string kind = "adamw";
  double lr = 1e-4;
  std::array<double, 2> betas = {0.9, 0.95};
  double eps = 1e-8;
  double weight_decay = 0.1;
  double momentum = 0;
  std::string schedule = "cosine";
  std::int64_t warmup_steps = kNotGiven;  ///< not given: derived from the run's steps
  std::int64_t decay_steps = 0;           ///< 0: not given; the decay ends at the last step
  double min_lr = 0;
  double layer_decay = 1;
  std::vector<std::string> freeze;
};

struct ZeroKeys {
  std::int64_t stage = 0;
  std::string accumulation = "ordered";
  bool overlap = true;
  double bucket_mib = 16;  ///< 0: each block is a unit
  std::int64_t prefetch_units = 1;
  WordOrNumber shard_group = "all";
  std::string offload_optimizer = "none";
  std::string offload_parameters = "none";
  std::string offload_dir;
  std::int64_t offload_mib = 256;
};

struct CommKeys {
  std::string backend = "auto";
  bool exact = false;
  double throttle_gbit = 0;
  double latency_us = 0;
  double timeout_s = 600;
};

struct CheckpointKeys {
  std::int64_t every = 1000;
  double every_minutes = 0;
  std::int64_t keep = 3;
  bool keep_best = false;
  bool async = true;
  std::int64_t staging_mib = 0;
  std::string on_error = "stop";
  double io_timeout_s = 3600;
  std::string resume = "none";
};

struct LogKeys {
  std::int64_t every = 10;
  std::string timeline = "none";
  std::int64_t timeline_from = 3;
  std::int64_t timeline_steps = 2;
  bool tensorboard = false;
  std::int64_t sample = 240;
};

struct Deck {
  RunKeys run;
  ModelKeys model;
  DataKeys data;
  TrainKeys train;
  OptimKeys optim;
  ZeroKeys zero;
  CommKeys comm;
  CheckpointKeys checkpoint;
  LogKeys log;
  bool plans_for_gpus = false;                 ///< for a plan: the planned run is on GPUs, whether or not this build is
  int ranks_per_node = 0;                      ///< ranks on each node of this job; 0: unknown or unequal
  std::string source;                          ///< the file it was read from
  std::map<std::string, std::string> origins;  ///< "zero.stage" -> "a.toml:12" or "command line"; absent: the default
  std::vector<std::string> notes;              ///< values that look like mistakes or that the command line replaced
  std::shared_ptr<const Deck> whole;           ///< in a deck of one lesson: the deck with all lessons
  /// With data.grow: the files of an epoch (include/kozero/data/corpus_epoch.hpp); "": epoch 0, of the files that are
  /// there.
  std::string corpus;
  std::size_t lesson = 0;  ///< in a deck of one lesson: its number, from 0

  /// Whether the user gave the key, in the file or on the command line.
  [[nodiscard]] bool is_set(const std::string& key) const { return origins.count(key) != 0; }
};

/// Reads, completes and checks a deck. Relative paths of data, tokenizer and tuning file are relative to the current
/// directory or, if they do not exist there, to the folder above the deck's own (for inputs/x.toml: the tree's top).
/// Throws Error(deck): one line with file and line, key, value, the accepted values and, for a wrong name, the nearest
/// accepted name.
Deck read_deck(const std::string& path, const std::vector<std::string>& overrides = {});

/// The same for a deck's text; `source` is the name that messages give it.
Deck parse_deck(const std::string& text, const std::string& source, const std::vector<std::string>& overrides = {});

/// The deck of one lesson: the values of run.curriculum[lesson] in their places.
Deck deck_of_lesson(const Deck& whole, std::size_t lesson);

/// The whole deck as TOML, each value followed by its origin in a comment. Reading it again gives the same deck.
std::string resolved_text(const Deck& deck);

/// Writes `heading` as comments, one per line, and resolved_text to a file. Throws Error(write) naming it.
void write_resolved(const Deck& deck, const std::string& path, const std::vector<std::string>& heading = {});

/// One line per key, without origins. Equal on two ranks if and only if their decks have the same values.
std::string fingerprint(const Deck& deck);

/// The first key in which two fingerprints differ, with both values ("zero.stage: 1 and 2"); "" if none does.
std::string first_difference(const std::string& a, const std::string& b);

}  // namespace kozero::io
