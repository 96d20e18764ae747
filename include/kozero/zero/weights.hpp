// SPDX-FileCopyrightText: The KoZeRO authors
// SPDX-License-Identifier: Apache-2.0
// weights.hpp: a model's weights under a placement: the float master and the network's 16-bit copy.
// acquire(unit) returns a View of replicated weights or of a gathered unit. FrozenWeights are weights in f32
// without gradients, for evaluation and generation.
#pragma once
#include <optional>
#include <string>
#include <vector>

#include <kozero/core/error.hpp>
#include <kozero/core/ledger.hpp>
#include <kozero/core/parameter_access.hpp>
#include <kozero/core/parameter_table.hpp>
#include <kozero/core/precision.hpp>
#include <kozero/dist/distributed_array.hpp>
#include <kozero/zero/gathered_units.hpp>
#include <kozero/zero/placement_row.hpp>

namespace kozero::zero {

// The parameters of all units, replicated or sharded, and the gathering of a unit before its use.
//   replicated: acquire(u) is a view of the array
//   sharded:    acquire(u) all-gathers unit u as GatheredUnits says
// The master is in float. In f32 it is the array that the network reads. For 16-bit weights it is an array of its own
// with the optimizer state's placement, and the 16-bit array is rounded from it when the weights are published.

/// The placements of the array that the network reads and of the master.
struct WeightPlacements {
  dist::Placement stored;
  dist::Placement master;  ///< used only where the weights have a master of their own
};

inline constexpr const char* kWeightsName = "weights";  ///< what the network reads

/// A unit's part of an array that rests on this rank from one update to the next.
struct RestingArray {
  std::string name;  ///< "weights", "master weights", "exp_avg"
  int unit = 0;
  StoredVector values;
  bool replicated = false;  ///< all ranks hold the same bits
};

/// The weights for initialization, the optimizer and checkpoints: their master in float.
class Weights {
 public:
  explicit Weights(const ParameterTable& table) : table_(table) {}
  virtual ~Weights() = default;
  Weights(const Weights&) = delete;
  Weights& operator=(const Weights&) = delete;

  /// shard(unit) and, where the master is replicated, full(unit) may be filled or updated in place. publish() then
  /// makes the change visible.
  [[nodiscard]] virtual const dist::DistributedArray<float>& master() const = 0;
  /// The shards of this rank, and where they begin in a flat array of them.
  [[nodiscard]] const ShardLayout& layout() const { return master().layout(); }

  /// What the network reads of this rank's shard, or of the whole unit where it is replicated. Code that changes the
  /// master also writes these, or calls publish().
  [[nodiscard]] virtual StoredVector stored_shard(int unit) const = 0;
  [[nodiscard]] virtual StoredVector stored_unit(int unit) const = 0;

  /// Returns when no peer reads this rank's shards any more: they may change.
  virtual void wait_until_reusable() = 0;
  /// After shards of the master changed: a replicated master is gathered again, 16-bit weights are rounded from it, and
  /// what the network reads is shared.
  virtual void publish() = 0;
  /// After shards of master and rounded weights changed: replicated weights are gathered again, gathered copies of
  /// sharded ones are dropped. (A replicated master of 16-bit weights is not gathered: every rank updated all of it.)
  virtual void share() = 0;

  /// What the network reads, and its master where that is another array.
  [[nodiscard]] virtual std::vector<RestingArray> at_rest() const = 0;
  /// Compares gathered copies of sharded weights, when they are released, with their owners' hashes: the hash of unit
  /// u's shard on rank r at [u * ranks + r]. An empty list ends it. Costs a wait for the device.
  virtual void watch_copies(std::vector<std::uint64_t> owners) = 0;
  /// The unit of the first copy that differed since then, "" where none did.
  [[nodiscard]] virtual std::string first_wrong_copy() const = 0;

  /// A hash of the master's bits that this rank owns: the same under every placement.
  [[nodiscard]] std::uint64_t hash_of_my_shards() const;

  [[nodiscard]] const std::string& unit_name(int unit) const { return table_.unit(unit).name; }

 protected:
  [[nodiscard]] const ParameterTable& table() const { return table_; }

 private:
  const ParameterTable& table_;
};

/// The same, and what a model of that type reads.
template <class Scalar>
class WeightsOf final : public Weights {
 public:
  /// Takes the memory of their placements from `ledger`. Of sharded weights `prefetch_units` are gathered ahead.
  WeightsOf(const ParameterTable& table, dist::Communicator& comm, WeightPlacements placements, MemoryLedger& ledger,
            int prefetch_units = 0);

  /// All elements of the unit, valid until release. Throws Error(internal) where the unit or its slot is held.
  Vector<const Scalar> acquire(int unit);
  void release(int unit);

  [[nodiscard]] const dist::DistributedArray<float>& master() const override;
  [[nodiscard]] StoredVector stored_shard(int unit) const override { return stored_.shard(unit); }
  [[nodiscard]] StoredVector stored_unit(int unit) const override { return stored_.full(unit); }
  void wait_until_reusable() override;
  void publish() override;
  void share() override;
  [[nodiscard]] std::vector<RestingArray> at_rest() const override;
  void watch_copies(std::vector<std::uint64_t> owners) override;
  [[nodiscard]] std::string first_wrong_copy() const override { return wrong_copy_; }

 private:
  /// Rounds what this rank has of a unit's master; other ranks' shards of replicated weights may still be old.
  void round(int unit) const;
  /// Of a unit that is gathered and held.
  void check_copy(int unit);

  dist::DistributedArray<Scalar> stored_;
  dist::DistributedArray<Scalar> stored_shards_;          // of the same memory
  std::optional<dist::DistributedArray<float>> master_;   // none in f32
  std::optional<GatheredUnits<Scalar>> gathered_;         // sharded only
  std::vector<bool> held_;                                // by unit
  std::vector<std::uint64_t> owners_;                     // hashes of shards, while copies are watched
  std::string wrong_copy_;
};

// Weights without gradients, in f32, for evaluation and generation.
// Replicated or sharded as `zero.stage` asks for training, so that what trains sharded can be evaluated sharded.

class FrozenWeights final : public ParameterAccess<float> {
 public:
  FrozenWeights(const ParameterTable& table, dist::Communicator& comm, int stage, MemoryLedger& ledger,
                int prefetch_units = 0)
      : weights_(table, comm, {placement_row(stage).parameters, placement_row(stage).parameters}, ledger,
                 prefetch_units) {}

  Vector<const float> acquire(int unit) override { return weights_.acquire(unit); }
  void release(int unit) override { weights_.release(unit); }
  UnitGradient gradient(int /*unit*/) override { throw Error(Failure::internal, "frozen weights have no gradient"); }
  void gradient_ready(int /*unit*/) override { throw Error(Failure::internal, "frozen weights have no gradient"); }

  [[nodiscard]] Weights& weights() { return weights_; }

 private:
  WeightsOf<float> weights_;
};

}  // namespace kozero::zero
