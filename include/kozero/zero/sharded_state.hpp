// SPDX-FileCopyrightText: The KoZeRO authors
// SPDX-License-Identifier: Apache-2.0
// sharded_state.hpp: weights and gradients of a model under one ZeRO stage, as the model and the trainer see them.
//   trainer:  gradients().begin_micro_step({a, ...}); model.forward_backward(state, ...); ... finish_gradients();
//             norm = gradients().norm(); for (range : update_ranges()) optimizer.update(range ...); publish_update();
//   model:    ParameterAccess (acquire, release, gradient, gradient_ready), which it is.
// Stages differ in what is stored, never in who owns what: a unit is cut by one Partition under every stage, and every
// sum over ranks is in rank order, so all stages give the same bits. The stage itself is looked at only here.
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
  bool overlap = true;     ///< a unit's reduction travels while the next one works
  int prefetch_units = 1;  ///< units gathered ahead where parameters are sharded
  int units_held = 1;      ///< units of blocks that backward holds at once, in groups counted from the first
  bool trains = true;      ///< false: weights alone, for evaluation and generation
};

/// What one rank updates of one unit: its shard, or all of it where the optimizer state is replicated.
template <class Scalar>
struct UpdateRange {
  UnitRange range;        ///< range.first: where its optimizer state begins in the rank's flat state
  Vector<float> master;
  Vector<Scalar> stored;  ///< what the model reads of the master: to be kept up to date
  Vector<const float> gradient;
};

template <class Scalar>
class ShardedState final : public ParameterAccess<Scalar> {
 public:
  ShardedState(const ParameterTable& table, const dist::Mesh& mesh, const Config& config, MemoryLedger& ledger,
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

  /// Fills every rank's own shards with the parameters' initial values, then publishes them.
  void initialise(std::uint64_t seed);
  /// After the last micro-step: gradients are reduced, and weights may be updated.
  void finish_gradients();
  /// In unit order; valid for the state's lifetime. None without training.
  [[nodiscard]] const std::vector<UpdateRange<Scalar>>& update_ranges() const { return update_ranges_; }
  /// Makes updated shards visible to every rank; nothing moves where every rank updated all units.
  void publish_update();
  /// Whether every rank holds, and updates, all of every unit.
  [[nodiscard]] bool updates_whole_units() const { return row_.optimizer == dist::Placement::replicated; }

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
};

}  // namespace kozero::zero
