// SPDX-FileCopyrightText: The KoZeRO authors
// SPDX-License-Identifier: Apache-2.0
// settings.hpp: the settings of a run that follow from a deck and n ranks: shapes, batch sizes, steps, learning rate.
#pragma once
#include <string>
#include <vector>

#include <kozero/core/precision.hpp>
#include <kozero/distributed/communicator.hpp>
#include <kozero/model/config.hpp>
#include <kozero/optim/optimizer.hpp>
#include <kozero/train/engine.hpp>
#include <kozero/zero/sharded_state.hpp>
#include "io/deck/deck.hpp"

namespace kozero::train {

///   global_batch = ranks * micro_batch * accumulate if accumulate is given, else the deck's, scaled by batch_scaling
///   micro_steps  = ceil(ceil(global_batch / micro_batch) / ranks)       the same on all ranks
struct BatchSizes {
  std::int64_t global_batch = 0;  ///< sequences per step over all ranks
  std::int64_t micro_batch = 0;   ///< sequences of a granule; a step's last granule may have fewer
  int micro_steps = 1;
  double rate_factor = 1.0;  ///< factor on optim.lr and optim.min_lr, from train.batch_scaling
};

/// Steps first+1 ... last.
struct StepRange {
  std::int64_t first = 0;
  std::int64_t last = 0;
};

/// The steps of a deck that is of one lesson of a curriculum; {0, 0} for other decks.
StepRange steps_of_lesson(const io::Deck& deck, int num_ranks);

/// The lesson of the deck's curriculum that has the step behind `step`; the last one behind its end.
std::size_t lesson_after(const io::Deck& whole, int num_ranks, std::int64_t step);

/// Steps of the whole run, from its beginning.
std::int64_t total_steps(const io::Deck& deck, std::int64_t num_samples, std::int64_t global_batch);

/// The learning rates of a run of `steps` steps; `rate_factor`: BatchSizes'.
optim::ScheduleConfig schedule_of(const io::Deck& deck, double rate_factor, std::int64_t steps);

BatchSizes batch_sizes(const io::Deck& deck, int num_ranks);

/// The communicator options for training with this deck.
distributed::CommunicatorOptions communicator_options(const io::Deck& deck);

/// Whether the run uses GPUs: this is a GPU build, or the plan is for GPUs.
bool runs_on_gpus(const io::Deck& deck);

/// Ranks per node: Deck::ranks_per_node, or 8 if that is unknown.
int assumed_ranks_per_node(const io::Deck& deck);

/// Ranks per group by zero.shard_group, at most `num_ranks`. Throws Error(deck) unless `num_ranks` is a multiple of the
/// result.
int ranks_per_group(const io::Deck& deck, int num_ranks);

/// The deck's network: the preset's shape, overridden by the given keys. `data_vocab` tokens (0: unknown) fill in a
/// missing model.vocab. Throws Error(deck) if model.vocab is smaller than `data_vocab`.
model::Config model_config(const io::Deck& deck, std::int64_t data_vocab);

/// Tokens of a sequence: train.seq, or the model's positions. Throws Error(deck) if the model has fewer.
std::int64_t seq_of(const io::Deck& deck, const model::Config& model);

/// The memory for state that does not fit into the device's memory.
struct Offload {
  MemorySource::Kind optimizer = MemorySource::Kind::device;   ///< the optimizer's states, and the master weights
  MemorySource::Kind parameters = MemorySource::Kind::device;  ///< the weights that the model reads
  /// The files' folder: zero.offload_dir, or the nearest existing parent of run.dir.
  std::string folder;
  std::int64_t bytes = 0;  ///< of memory for the files' pages

  [[nodiscard]] bool uses(MemorySource::Kind kind) const { return optimizer == kind || parameters == kind; }
};

struct Settings {
  Use use = Use::training;
  bool on_gpus = false;
  distributed::CommunicatorOptions comm;
  Precision precision = Precision::f32;
  model::Config model;
  model::Recompute recompute;
  BatchSizes batch;
  bool masks_documents = false;
  int ranks_per_group = 1;  ///< state is sharded over a group's ranks and replicated over the groups
  zero::Config zero;
  Offload offload;
  optim::Config optim;
  StepConfig step;
  /// From the beginning of training, to the end of a lesson, or of an epoch of a corpus that grows.
  std::int64_t steps = 0;
  std::uint64_t seed = 1;
  std::uint64_t order_seed = 1;  ///< of the samples' order, another one in each lesson
  data::SamplingBegin samples;   ///< of a lesson, or of an epoch of a corpus that grows
  bool staged = false;           ///< checkpoints are written from a copy, while training goes on
  std::int64_t staging_mib = 0;  ///< limit of that copy; 0: none
};

/// Units of transformer blocks that backward holds at once: those of a group that it recomputes (model::Recompute).
int units_held(const Settings& settings);

/// `num_samples` of the training data (0: unknown; run.epochs then counts as one step). A warm-up or decay that goes
/// beyond the last step is clamped.
Settings settings_of(const io::Deck& deck, int num_ranks, std::int64_t data_vocab, std::int64_t num_samples);

inline constexpr const char* kRandom = "random";  ///< model.init for random initial weights

/// The deck as a run's files store it: with the model's shape and the run's folder filled in, and with absolute paths,
/// so that the run's folder defines the model. Of a lesson, the deck with all lessons.
io::Deck resolved_deck(io::Deck deck, const Settings& settings, const std::string& folder);

/// The model's shape as JSON.
std::string model_json(const model::Config& config);

/// The model's shape from a text of model_json(). Throws Error(input) naming `path` and the problem.
model::Config config_of(const std::string& model_json, const std::string& path);

/// The keys of the schedule that are clamped in a run of `steps` steps; "" if none is.
std::string schedule_note(const io::Deck& deck, std::int64_t steps);

}  // namespace kozero::train
