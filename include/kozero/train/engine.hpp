// SPDX-FileCopyrightText: The KoZeRO authors
// SPDX-License-Identifier: Apache-2.0
// engine.hpp: what a rank holds of a model. An Evaluator has the model and its weights, for evaluation and generation.
// An Engine trains: it also has gradients and optimizer state. Both interfaces are the same for every stored type. Also
// the scale of fp16's loss.
#pragma once
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include <kozero/core/events.hpp>
#include <kozero/core/views.hpp>
#include <kozero/data/batch_loader.hpp>
#include <kozero/data/sampler.hpp>
#include <kozero/distributed/distributed_array.hpp>
#include <kozero/model/model.hpp>
#include <kozero/optim/optimizer.hpp>
#include <kozero/optim/schedule.hpp>
#include "io/checkpoint/manifest.hpp"

namespace kozero::io {
class ReadWatch;
}

namespace kozero::train {

/// The factor on the loss's gradient that keeps the gradients of activations in fp16's range.
///   dynamic: starts at 2^16; halved by an overflow, doubled after `window` good steps in a row; stays in [1, 2^24]
///   fixed:   the deck's value; 1 if nothing is stored in fp16
/// The scale is a power of two, so scaling and unscaling change no bit of a value that neither overflows nor
/// underflows. Every rank has the same scale, since the gradient norm is global.
/// Micikevicius et al. 2018, arXiv:1710.03740.
class LossScaler {
 public:
  /// A fixed scale of 1.
  LossScaler() = default;
  static LossScaler fixed(double scale) { return {scale, 0}; }
  static LossScaler dynamic(std::int64_t window, double first = 0x1p16) { return {first, window}; }

  [[nodiscard]] double scale() const { return scale_; }

  /// After a step whose gradients were finite.
  void count_good_step();
  /// After a step whose loss was finite and whose gradients were not: lowers the scale for the next step,
  /// or returns false if the scale cannot be lowered.
  [[nodiscard]] bool back_off();

  /// The state for a checkpoint; nullopt for a fixed scale.
  [[nodiscard]] std::optional<io::LossScale> state() const;
  /// Continues from a saved state. A fixed scale ignores it; without a saved state the scale stays as it is.
  void restore(const std::optional<io::LossScale>& saved);

 private:
  LossScaler(double scale, std::int64_t window) : scale_(scale), window_(window) {}
  [[nodiscard]] bool is_dynamic() const { return window_ > 0; }

  double scale_ = 1.0;
  std::int64_t window_ = 0;  // 0: fixed
  std::int64_t good_steps_ = 0;
};

enum class OnNonFinite { stop, skip };

struct StepConfig {
  std::int64_t seq = 0;           ///< T: tokens of a sequence
  std::int64_t steps_before = 0;  ///< of the curriculum's earlier lessons: the schedule begins behind them
  int micro_steps = 1;            ///< A
  double grad_clip = 1.0;         ///< largest global gradient norm; 0: no clipping
  OnNonFinite on_nonfinite = OnNonFinite::stop;
  std::int64_t max_skips = 10;   ///< most skips by on_nonfinite in a row; one more ends the run
  std::int64_t check_every = 0;  ///< steps between checks of the state's bits (state_check.hpp); 0: none
  LossScaler loss_scaler = {};   ///< an overflow that lowers the scale is not a case of on_nonfinite
  optim::ScheduleConfig schedule;
  std::int64_t optimizer_start = 0;  ///< updates made before the optimizer's state began
};

struct StepResult {
  std::int64_t step = 0;     ///< from 1
  std::int64_t tokens = 0;   ///< positions of the step's samples, over all ranks
  std::int64_t targets = 0;  ///< those of them whose targets count; 1 if none does: its loss is 0
  double loss = 0.0;         ///< mean over those targets, nats
  double grad_norm = 0.0;
  double lr = 0.0;
  double loss_scale = 1.0;
  bool skipped = false;             ///< the update was skipped: the loss or the norm was not finite
  std::int64_t skips_in_a_row = 0;  ///< by on_nonfinite, this step included; a lowered scale does not count
  int request = 0;                  ///< the largest request of any rank
  int micro_steps = 0;
  int interrupted_after = 0;    ///< the micro-step after which the ranks agreed to stop; 0: the step is complete
  std::string bad_tensor = {};  ///< if skipped: the first tensor with a non-finite gradient, "" if none
};

/// The use for which an engine takes memory.
enum class Use {
  training,
  evaluation,  ///< weights and activations
  generation   ///< weights; the caller reserves a cache
};

struct Settings;
class Staging;

/// A model and its weights. The interface hides the type of stored weights: its users see float.
/// src/train/evaluator.hpp implements it.
class Evaluator {
 public:
  virtual ~Evaluator() = default;

  // The model, each call as in model.hpp.
  [[nodiscard]] virtual const model::Config& config() const = 0;
  /// Tokens of a sequence of evaluate() and next_token_logits(), at most; config().seq or fewer.
  [[nodiscard]] virtual std::int64_t seq() const = 0;
  [[nodiscard]] virtual const ParameterTable& parameters() const = 0;
  [[nodiscard]] virtual double flops_per_token() const = 0;
  virtual std::string closing_line() = 0;
  virtual double evaluate(const model::Batch& batch) = 0;
  virtual void next_token_logits(Matrix<const Token> inputs, std::int64_t num_tokens, Vector<float> logits) = 0;
  virtual void reserve_cache(MemoryLedger& ledger, const model::CacheExtents& extents) = 0;
  virtual void decode(const model::TokenRows& rows, Matrix<float> logits) = 0;

  // The state, for files. Call publish() after filling the master's shards.
  /// Fills every rank's shards with the parameters' initial values and publishes them. Leaves the base of adapters.
  virtual void initialize(std::uint64_t seed) = 0;
  /// Whether the unit's values are in the master. In 16 bits, those of an evaluation are not.
  [[nodiscard]] virtual bool is_in_master(int unit) = 0;
  /// Sets elements from `begin` on of a unit, all in range_to_put(unit), before publish(), also of a unit without a
  /// master. A quantized base needs multiples of 64 elements.
  [[nodiscard]] virtual UnitRange range_to_put(int unit) = 0;
  virtual void put(int unit, std::int64_t begin, const HostVector<const float>& values) = 0;
  [[nodiscard]] virtual const distributed::DistributedArray<float>& master() const = 0;
  virtual void publish() = 0;
  /// Follows the reads of the state for a file, if the state is on a disk (zero.offload_*); else nullptr.
  [[nodiscard]] virtual io::ReadWatch* disk_watch() const { return nullptr; }

  /// The communicator of all ranks.
  [[nodiscard]] virtual distributed::Communicator& comm() = 0;
  /// Throws Error(internal) for an evaluator for generation.
  [[nodiscard]] virtual data::BatchLoader& loader() = 0;
};

/// Training. Trainer<Scalar> (src/train/trainer.hpp) implements the interface.
class Engine : public Evaluator {
 public:
  [[nodiscard]] virtual std::vector<optim::NamedState> optimizer_states() const = 0;
  /// The elements that this rank updates and has optimizer state for, in the order of the state's elements.
  [[nodiscard]] virtual const std::vector<UnitRange>& update_ranges() const = 0;

  /// Sets the samples and settings of the following steps. `sampler` and `source` outlive the engine's last step.
  virtual void train_on(const data::Sampler& sampler, const data::SampleSource& source, const StepConfig& config) = 0;
  /// One training step. `request` is called when the losses are gathered, and its number is gathered with them, so that
  /// the ranks agree on a stop without a further collective. In a step of several seconds, the ranks also agree between
  /// micro-steps, every 2 s; a request other than 0 then interrupts the step, and the state stays that of the step
  /// before. Throws Error(non_finite, seen by all ranks) with the first bad tensor if on_nonfinite is stop or the step
  /// would exceed max_skips in a row; Error(internal, seen by all ranks) if a check finds changed bits.
  virtual StepResult step(std::int64_t step, const std::function<int()>& request = {}) = 0;
  /// Throws Error(input), seen by all ranks, if state on a disk is not what the run wrote. Reads all of it. Collective.
  virtual void require_unchanged_disk() = 0;
  /// The scale of the next step.
  [[nodiscard]] virtual const LossScaler& loss_scaler() const = 0;

  [[nodiscard]] virtual PhaseSeconds& phase_seconds() = 0;
  /// nullptr for synchronous saves.
  [[nodiscard]] virtual Staging* staging() = 0;
};

/// Takes all memory for training from `ledger`; weights are zero. With a planning ledger and a planned communicator
/// nothing is allocated or sent, and the ledger is the plan. `mesh` has groups of settings.ranks_per_group ranks
/// (distributed::make_mesh). The mesh's communicators and `ledger` outlive the engine.
std::unique_ptr<Engine> make_engine(const Settings& settings, const distributed::Mesh& mesh, MemoryLedger& ledger);

/// The same for settings.use: for evaluation and generation weights alone, for training an Engine.
std::unique_ptr<Evaluator> make_evaluator(const Settings& settings, const distributed::Mesh& mesh,
                                          MemoryLedger& ledger);

}  // namespace kozero::train
