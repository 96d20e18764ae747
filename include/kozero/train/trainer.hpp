// SPDX-FileCopyrightText: The KoZeRO authors
// SPDX-License-Identifier: Apache-2.0
// trainer.hpp: one training step, the same for every ZeRO configuration and model.
//   for each micro-step: read a batch; forward and backward add gradients, which the sharded state reduces
//   loss and gradient norm over all ranks; stop or skip before any bit of the state changes if one is not finite
//   gradients are scale times the loss's (loss_scaler.hpp); their norm, and what the update sees, are unscaled
//   clip by the global norm; update this rank's pieces; publish them
#pragma once
#include <functional>
#include <memory>
#include <string>

#include <kozero/core/readings.hpp>
#include <kozero/core/timeline.hpp>
#include <kozero/model/network.hpp>
#include <kozero/optim/optimizer.hpp>
#include <kozero/optim/schedule.hpp>
#include <kozero/train/batch_loader.hpp>
#include <kozero/train/loss_scaler.hpp>
#include <kozero/train/sampler.hpp>
#include <kozero/zero/sharded_state.hpp>

namespace kozero::train {

class StateCheck;

enum class OnNonFinite { stop, skip };

struct StepConfig {
  std::int64_t seq = 0;    ///< T: tokens of a sequence
  int micro_steps = 1;     ///< A
  double grad_clip = 1.0;  ///< largest global gradient norm; 0: no clipping
  OnNonFinite on_nonfinite = OnNonFinite::stop;
  std::int64_t max_skips = 10;   ///< in a row, of on_nonfinite's: one more is refused
  std::int64_t check_every = 0;  ///< steps between checks of the state's bits (state_check.hpp); 0: none
  LossScaler loss_scaler = {};  ///< an overflow that it can answer is none of on_nonfinite's
  optim::ScheduleConfig schedule;
  std::int64_t optimizer_start = 0;  ///< updates made before the optimizer's state began
};

struct StepResult {
  std::int64_t step = 0;    ///< from 1
  std::int64_t tokens = 0;  ///< predicted in this step, over all ranks
  double loss = 0.0;        ///< mean over those tokens, nats
  double grad_norm = 0.0;
  double lr = 0.0;
  double loss_scale = 1.0;
  bool skipped = false;         ///< the update was left out: the loss or the norm was not finite
  std::int64_t skips_in_a_row = 0;  ///< of on_nonfinite's, this one included; a scale that backed off is none of them
  int request = 0;                  ///< the largest that any rank gave to this step
  std::string bad_tensor = {};  ///< where it was: the first tensor whose gradient is not finite, "" where none is
};

/// The parts a step works on; all outlive the trainer.
struct Parts {
  model::Network& network;
  zero::ShardedState& state;
  optim::Optimizer& optimizer;
  dist::Communicator& comm;
  Timeline& timeline;
};

class Trainer {
 public:
  Trainer(Parts parts, BatchLoader& loader, const Sampler& sampler, const SampleSource& source, StepConfig config);
  ~Trainer();

  /// One update. `request` is asked where the losses are gathered, and its number goes with them to all ranks: a stop
  /// that they agree on without a collective more. Throws Error(non_finite, seen by all ranks) naming the first bad
  /// tensor where config says stop, or the step is one more than max_skips in a row; Error(internal, seen by all ranks)
  /// where a check finds changed bits.
  StepResult step(std::int64_t step, const std::function<double()>& request = {});

  /// As it is for the next step.
  [[nodiscard]] const LossScaler& loss_scaler() const { return config_.loss_scaler; }

 private:
  /// Fills in the loss, summed in rank order, and the request.
  void gather_loss(const std::function<double()>& request, StepResult& result);
  [[nodiscard]] model::Batch batch(std::int64_t step, int micro_step);
  [[noreturn]] void refuse_non_finite(const StepResult& result) const;
  void update(const StepResult& result);
  [[nodiscard]] bool checks(std::int64_t step) const;
  void record_state(std::int64_t step);

  Parts parts_;
  BatchLoader& loader_;
  const Sampler& sampler_;
  const SampleSource& source_;
  StepConfig config_;
  std::int64_t skips_in_a_row_ = 0;
  std::unique_ptr<StateCheck> check_;  // where config checks
  Readings losses_;  // by micro-step: the sum over this rank's tokens
};

}  // namespace kozero::train
