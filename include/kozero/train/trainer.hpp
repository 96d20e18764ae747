// SPDX-FileCopyrightText: The KoZeRO authors
// SPDX-License-Identifier: Apache-2.0
// trainer.hpp: one training step, the same for every ZeRO configuration and model, and fp16's loss scale.
//   for each micro-step: read a batch; forward and backward add gradients, which the sharded state reduces
//   loss and gradient norm over all ranks; stop or skip before any bit of the state changes; update; publish
// The loss scale is a power of two: halved by an overflow, doubled after `window` good steps.
#pragma once
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>

#include <kozero/core/timing.hpp>
#include <kozero/core/views.hpp>
#include <kozero/model/model.hpp>
#include <kozero/optim/optimizer.hpp>
#include <kozero/train/data_set.hpp>
#include <kozero/zero/sharded_state.hpp>
#include "io/checkpoint/manifest.hpp"

namespace kozero::train {

// The factor on the loss's gradient that keeps the gradients of activations in fp16's range.
//   dynamic: from 2^16 on; halved by an overflow, doubled after `window` good steps in a row; from 1 to 2^24
//   fixed:   what the deck says; 1 where nothing is stored in fp16
// It is a power of two, so that scaling and its undoing change no bit of what neither overflows nor underflows. Every
// rank has the same one, since the gradient norm that tells is global.      Micikevicius et al. 2018, arXiv:1710.03740.

class LossScaler {
 public:
  /// Scales nothing.
  LossScaler() = default;
  static LossScaler fixed(double scale) { return {scale, 0}; }
  static LossScaler dynamic(std::int64_t window, double first = 0x1p16) { return {first, window}; }

  [[nodiscard]] double scale() const { return scale_; }

  /// After a step whose gradients were finite.
  void count_good_step();
  /// After one whose were not, though the loss was: lowers the scale for the next,
  /// or returns false where it may not fall.
  [[nodiscard]] bool back_off();

  /// What a checkpoint keeps of it; nothing of a fixed one.
  [[nodiscard]] std::optional<io::LossScale> state() const;
  /// Goes on from there; a fixed one, and one without anything saved, stays as it is.
  void restore(const std::optional<io::LossScale>& saved);

 private:
  LossScaler(double scale, std::int64_t window) : scale_(scale), window_(window) {}
  [[nodiscard]] bool is_dynamic() const { return window_ > 0; }

  double scale_ = 1.0;
  std::int64_t window_ = 0;  // 0: fixed
  std::int64_t good_steps_ = 0;
};

// One training step, the same for every ZeRO configuration and model.
//   for each micro-step: read a batch; forward and backward add gradients, which the sharded state reduces
//   loss and gradient norm over all ranks; stop or skip before any bit of the state changes if one is not finite
//   gradients are scale times the loss's (trainer.hpp); their norm, and what the update sees, are unscaled
//   clip by the global norm; update what this rank owns; publish it

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
  StepResult step(std::int64_t step, const std::function<int()>& request = {});

  /// As it is for the next step.
  [[nodiscard]] const LossScaler& loss_scaler() const { return config_.loss_scaler; }

 private:
  /// Fills in the loss, summed in rank order, and the request.
  void gather_loss(const std::function<int()>& request, StepResult& result);
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
  HostScalars losses_;  // by micro-step: the sum over this rank's tokens
};

}  // namespace kozero::train
