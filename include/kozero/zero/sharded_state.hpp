// SPDX-FileCopyrightText: The KoZeRO authors
// SPDX-License-Identifier: Apache-2.0
// sharded_state.hpp: weights and gradients of a model under one ZeRO stage, for the model and the trainer.
//   trainer:  gradients().begin_micro_step({a, ...}); model.forward_backward(state, ...); ... finish_gradients();
//             norm = gradients().norm(); for (range : update_ranges()) optimizer.update(range ...); publish_update();
//   model:    uses the base class ParameterAccess: acquire, release, gradient, gradient_ready
// Stages differ in storage, never in ownership: every stage cuts a unit by the same Partition, and every sum over ranks
// is in rank order, so all stages give the same bits. Model and trainer do not depend on the stage.
#pragma once
#include <optional>
#include <vector>

#include <kozero/core/parameter_access.hpp>
#include <kozero/core/parameter_table.hpp>
#include <kozero/zero/gradients.hpp>
#include <kozero/zero/weights.hpp>

namespace kozero::zero {

struct Config {
  int stage = 0;
  Accumulation accumulation = Accumulation::ordered;
  int micro_steps = 1;
  bool overlap = true;     ///< a unit's reduction runs while the next unit computes
  int prefetch_units = 1;  ///< units gathered ahead if parameters are sharded
  int units_held = 1;      ///< units of blocks that backward holds at once, in groups counted from the first
  BaseType base = BaseType::as_weights;
  bool trains = true;  ///< false: only weights, for evaluation and generation
};

/// The elements of a unit that this rank updates: its shard, or the whole unit if the optimizer state is replicated.
template <class Scalar>
struct UpdateRange {
  UnitRange range;  ///< range.first: begin of the range's state in the rank's flat optimizer state
  Vector<float> master;
  Vector<Scalar> stored;  ///< the same elements as the model reads them; updated together with the master
  Vector<const float> gradient;
};

template <class Scalar>
class ShardedState final : public ParameterAccess<Scalar> {
 public:
  ShardedState(const ParameterTable& table, const distributed::Mesh& mesh, const Config& config, MemoryLedger& ledger,
               StateMemory memory = {});
  ShardedState(const ShardedState&) = delete;
  ShardedState& operator=(const ShardedState&) = delete;

  Vector<const Scalar> acquire(int unit) override {
    if (gradients_) gradients_->note_acquired_unit();
    return weights_.acquire(unit);
  }
  void release(int unit) override { weights_.release(unit); }
  UnitGradient gradient(int unit) override { return gradients().addend(unit); }
  void gradient_ready(int unit) override { gradients().ready(unit); }
  UnitGradient lookup_gradient(int unit) override { return gradients().addend(gradients().lookups_of(unit)); }
  void lookup_gradient_ready(int unit) override { gradients().ready(gradients().lookups_of(unit)); }

  /// Fills every rank's own shards, except those of the base of adapters, with the parameters' initial values, then
  /// publishes them.
  void initialize(std::uint64_t seed);
  /// After the last micro-step: completes the gradients. The weights may be updated afterwards.
  void finish_gradients();
  /// Of the units that train, in unit order; valid for the state's lifetime. Empty without training.
  [[nodiscard]] const std::vector<UpdateRange<Scalar>>& update_ranges() const { return update_ranges_; }
  /// Makes updated shards visible to every rank. Moves nothing if every rank updated all units.
  void publish_update();
  /// Whether every rank updates all elements of every unit.
  [[nodiscard]] bool updates_whole_units() const { return row_.optimizer == distributed::Placement::replicated; }

  [[nodiscard]] Weights<Scalar>& weights() { return weights_; }
  [[nodiscard]] const Weights<Scalar>& weights() const { return weights_; }
  /// Throws Error(internal) without training.
  [[nodiscard]] Gradients& gradients();

 private:
  const ParameterTable& table_;
  PlacementRow row_;
  Weights<Scalar> weights_;
  std::optional<Gradients> gradients_;
  std::vector<UpdateRange<Scalar>> update_ranges_;
  std::vector<int> updated_units_;
};

}  // namespace kozero::zero
