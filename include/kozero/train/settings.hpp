// SPDX-FileCopyrightText: The KoZeRO authors
// SPDX-License-Identifier: Apache-2.0
// settings.hpp: what a deck means on n ranks: shapes, batch sizes, step count, learning rate.
#pragma once
#include <string>
#include <vector>

#include <kozero/core/precision.hpp>
#include <kozero/dist/communicator.hpp>
#include <kozero/model/config.hpp>
#include <kozero/optim/optimizer.hpp>
#include <kozero/train/engine.hpp>
#include <kozero/zero/sharded_state.hpp>
#include "io/deck/deck.hpp"

namespace kozero::train {

//   global_batch = accumulate given: ranks * micro_batch * accumulate, otherwise the deck's, scaled by batch_scaling
//   micro_steps  = ceil(ceil(global_batch / micro_batch) / ranks)       the same on all ranks

struct BatchSizes {
  std::int64_t global_batch = 0;  ///< sequences a step over all ranks
  std::int64_t micro_batch = 0;   ///< sequences of a granule; a step's last one may have fewer
  int micro_steps = 1;
  double rate_factor = 1.0;       ///< on optim.lr and optim.min_lr, from train.batch_scaling
};

BatchSizes batch_sizes(const io::Deck& deck, int num_ranks);

/// What training by this deck asks of its communicator.
dist::CommunicatorOptions communicator_options(const io::Deck& deck);

/// Whether its run is on GPUs: this build's, or a plan's.
bool runs_on_gpus(const io::Deck& deck);

/// The ranks of a node: Deck::ranks_a_node, or 8 where that is not known.
int assumed_ranks_a_node(const io::Deck& deck);

/// How many ranks zero.shard_group puts into a group, at most `num_ranks`. Throws Error(deck) where `num_ranks` are no
/// whole number of groups.
int ranks_a_group(const io::Deck& deck, int num_ranks);

/// The deck's network: its preset, then the keys given; `data_vocab` tokens (0: not known) fill in a missing
/// model.vocab. Throws Error(deck) where model.vocab is smaller than the data's.
model::Config model_config(const io::Deck& deck, std::int64_t data_vocab);

/// Where state lies that has no room in the device's memory.
struct Offload {
  MemorySource::Kind optimizer = MemorySource::Kind::device;   ///< the optimizer's states, and the master weights
  MemorySource::Kind parameters = MemorySource::Kind::device;  ///< the weights that the model reads
  /// Of the files: zero.offload_dir, or run.dir's nearest parent that is there.
  std::string folder;
  std::int64_t bytes = 0;  ///< of memory for their pages

  [[nodiscard]] bool uses(MemorySource::Kind kind) const { return optimizer == kind || parameters == kind; }
};

struct Settings {
  Use use = Use::training;
  bool on_gpus = false;
  dist::CommunicatorOptions comm;
  Precision precision = Precision::f32;
  model::Config model;
  model::Recompute recompute;
  BatchSizes batch;
  int ranks_a_group = 1;  ///< over which state is sharded; it is replicated over the groups
  zero::Config zero;
  Offload offload;
  optim::Config optim;
  StepConfig step;
  std::int64_t steps = 0;  ///< the total from the beginning
  std::uint64_t seed = 1;
  bool staged = false;           ///< checkpoints are written from a copy, while training goes on
  std::int64_t staging_mib = 0;  ///< the most that copy may take; 0: what it needs
};

/// Units of transformer blocks that backward holds at once: those of a group that it computes again (model::Recompute).
int units_held(const Settings& settings);

/// `num_samples` of the training data (0: not known; then run.epochs cannot be resolved and counts as one step).
/// A warm-up or decay that goes beyond the last step is clamped.
Settings settings_of(const io::Deck& deck, int num_ranks, std::int64_t data_vocab, std::int64_t num_samples);

// What a run's files keep of deck and model: every shape, so that a folder alone names the model.

inline constexpr const char* kRandom = "random";  ///< model.init without weights to start from

/// The deck with the model's shape and the run's folder filled in, and with absolute paths.
io::Deck resolved_deck(io::Deck deck, const Settings& settings, const std::string& folder);

/// The model's shape as JSON.
std::string model_json(const model::Config& config);

/// The shape that such a text tells. Throws Error(input) naming `path` and what is wrong.
model::Config config_of(const std::string& model_json, const std::string& path);

/// What was clamped of the schedule in a run of `steps`, one text a key.
std::vector<std::string> schedule_notes(const io::Deck& deck, std::int64_t steps);

}  // namespace kozero::train
