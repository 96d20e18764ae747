// SPDX-FileCopyrightText: The KoZeRO authors
// SPDX-License-Identifier: Apache-2.0
// settings.hpp: what a deck means on n ranks, and the parts of a run put together by it.
//   global_batch, micro_steps, steps, learning rate, shapes          model, sharded state, optimizer
// An Assembly serves training, planning, verifying, evaluating and generating. With a planning ledger and a planned
// communicator nothing is allocated or sent.
#pragma once
#include <memory>
#include <string>
#include <vector>

#include <kozero/core/precision.hpp>
#include <kozero/model/config.hpp>
#include <kozero/optim/optimizer.hpp>
#include <kozero/train/checkpoint.hpp>
#include <kozero/train/trainer.hpp>
#include <kozero/zero/sharded_state.hpp>
#include "io/deck/deck.hpp"

namespace kozero::train {

// What a deck means on a given number of ranks: shapes, batch sizes, step count, learning rate.
//   global_batch = accumulate given: ranks * micro_batch * accumulate, otherwise the deck's, scaled by batch_scaling
//   micro_steps  = ceil(ceil(global_batch / ranks) / micro_batch)       the same on all ranks

struct BatchSizes {
  std::int64_t global_batch = 0;  ///< sequences a step over all ranks
  std::int64_t micro_batch = 0;   ///< the most sequences a rank holds at once
  int micro_steps = 1;
  double rate_factor = 1.0;       ///< on optim.lr and optim.min_lr, from train.batch_scaling
};

BatchSizes batch_sizes(const io::Deck& deck, int num_ranks);

/// The deck's network: its preset, then the keys given; `data_vocab` tokens (0: not known) fill in a silent
/// model.vocab. Throws Error(deck) where model.vocab is smaller than the data's.
model::Config model_config(const io::Deck& deck, std::int64_t data_vocab);

struct Settings {
  Precision precision = Precision::f32;
  model::Config model;
  BatchSizes batch;
  zero::Config zero;
  optim::Config optim;
  StepConfig step;
  std::int64_t steps = 0;  ///< the total from the beginning
  std::uint64_t seed = 1;
  bool staged = false;           ///< checkpoints are written from a copy, while training goes on
  std::int64_t staging_mib = 0;  ///< the most that copy may take; 0: what it needs
};

/// `num_samples` of the training data (0: not known; then run.epochs cannot be resolved and counts as one step).
/// A warm-up or decay that goes beyond the last step is clamped.
Settings settings_of(const io::Deck& deck, int num_ranks, std::int64_t data_vocab, std::int64_t num_samples);

/// What was clamped of the schedule in a run of `steps`, one text a key.
std::vector<std::string> schedule_notes(const io::Deck& deck, std::int64_t steps);

// The parts of a run, put together once for training, planning, verifying, evaluating and generating.
// With a planning ledger and a planned communicator nothing is allocated or sent: the ledger then is the plan.

class Assembly {
 public:
  /// Takes all memory of a run from `ledger`. Weights are zero until initialise() or a file is read into them.
  Assembly(const Settings& settings, dist::Communicator& comm, MemoryLedger& ledger);

  [[nodiscard]] Parts parts() { return Parts{*network_, *state_, *optimizer_, comm_, timeline_}; }
  [[nodiscard]] model::Network& network() { return *network_; }
  [[nodiscard]] zero::ShardedState& state() { return *state_; }
  [[nodiscard]] BatchLoader& loader() { return *loader_; }
  [[nodiscard]] Timeline& timeline() { return timeline_; }
  /// nullptr where saving is synchronous.
  [[nodiscard]] Staging* staging() { return staging_.get(); }

 private:
  /// Makes network and state with weights of this type.
  template <class Scalar>
  void store_weights_as(const Settings& settings, MemoryLedger& ledger);

  dist::Communicator& comm_;
  Timeline timeline_;
  std::unique_ptr<zero::ShardedState> state_;
  std::unique_ptr<model::Network> network_;  // behind what it reads
  std::unique_ptr<optim::Optimizer> optimizer_;
  std::unique_ptr<BatchLoader> loader_;
  std::unique_ptr<Staging> staging_;
};

}  // namespace kozero::train
