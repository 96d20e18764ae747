// SPDX-FileCopyrightText: The KoZeRO authors
// SPDX-License-Identifier: Apache-2.0
// sharded_state.hpp: weights and gradients of a model under one ZeRO stage, as the model and the trainer see them.
//   trainer:  begin_micro_step(a); model.forward_backward(state, ...); ... finish_gradients();
//             norm = gradient_norm(); for (range : update_ranges()) optimizer.update(range ...); publish();
//   model:    ParameterAccess (acquire, release, gradient, gradient_ready), which ShardedStateOf<Scalar> is.
// Stages differ in what is stored, never in who owns what: a unit is cut by one Partition under every stage, and every
// sum over ranks is in rank order, so all stages give the same bits. The stage itself is looked at only here.
#pragma once
#include <memory>
#include <vector>

#include <kozero/core/parameter_access.hpp>
#include <kozero/core/parameter_table.hpp>
#include <kozero/zero/gradients.hpp>
#include <kozero/zero/weights.hpp>

namespace kozero::zero {

struct Config {
  int stage = 0;
  Accumulation accumulation = Accumulation::local;
  int micro_steps = 1;
  bool overlap = true;     ///< a unit's reduction travels while the next one works
  int prefetch_units = 1;  ///< units gathered ahead where parameters are sharded
};

/// What one rank updates of one unit: its shard, or all of it where the optimizer state is replicated.
struct UpdateRange {
  UnitRange range;        ///< range.first: where its optimizer state begins in the rank's flat state
  Vector<float> weights;  ///< their master
  StoredVector stored;    ///< what the network reads of them: to be kept up to date
  Vector<const float> gradient;
};

class ShardedState {
 public:
  virtual ~ShardedState() = default;
  ShardedState(const ShardedState&) = delete;
  ShardedState& operator=(const ShardedState&) = delete;

  /// Fills every rank's own shards with the parameters' initial values, then publishes them.
  void initialise(std::uint64_t seed);

  void begin_micro_step(int micro_step) { gradients_.begin_micro_step(micro_step); }
  /// After the last micro-step: gradients are reduced, and weights may be updated.
  void finish_gradients() {
    gradients_.finish();
    weights_->wait_until_reusable();
  }
  [[nodiscard]] double gradient_norm() const { return gradients_.norm(); }
  [[nodiscard]] std::string first_non_finite_gradient() const { return gradients_.first_non_finite(); }
  /// Of a unit where updates_whole_units().
  [[nodiscard]] Vector<float> whole_gradient(int unit) const { return gradients_.full(unit); }
  void watch_gradients(bool watches) { gradients_.watch(watches); }
  [[nodiscard]] std::string first_changed_gradient() { return gradients_.first_changed(); }

  /// In unit order; valid for the state's lifetime.
  [[nodiscard]] const std::vector<UpdateRange>& update_ranges() const { return update_ranges_; }
  /// Makes updated shards visible to every rank; nothing moves where every rank updated all units.
  void publish();

  /// The weights themselves, for writing files and loading them.
  [[nodiscard]] Weights& weights() { return *weights_; }
  /// Whether every rank holds, and updates, all of every unit.
  [[nodiscard]] bool updates_whole_units() const { return row_.optimizer == dist::Placement::replicated; }

 protected:
  ShardedState(const ParameterTable& table, dist::Communicator& comm, const Config& config,
               std::unique_ptr<Weights> weights, MemoryLedger& ledger);

  [[nodiscard]] Gradients& gradients() { return gradients_; }

 private:
  const ParameterTable& table_;
  PlacementRow row_;
  std::unique_ptr<Weights> weights_;
  Gradients gradients_;
  std::vector<UpdateRange> update_ranges_;
};

/// The state of a model that reads weights of this type.
template <class Scalar>
class ShardedStateOf final : public ShardedState, public ParameterAccess<Scalar> {
 public:
  ShardedStateOf(const ParameterTable& table, dist::Communicator& comm, const Config& config, MemoryLedger& ledger);

  Vector<const Scalar> acquire(int unit) override { return weights_of_.acquire(unit); }
  void release(int unit) override { weights_of_.release(unit); }
  UnitGradient gradient(int unit) override { return gradients().addend(unit); }
  void gradient_ready(int unit) override { gradients().ready(unit); }

 private:
  WeightsOf<Scalar>& weights_of_;
};

}  // namespace kozero::zero
