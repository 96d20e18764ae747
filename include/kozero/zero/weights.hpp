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
//   replicated: one flat array of the table's extent; acquire(u) is a view of it.
//   sharded:    this rank's slices in unit order; acquire(u) all-gathers unit u as GatheredUnits says.
// The truth is in float: the master. In f32 it is the weights themselves; of 16-bit weights it is an array of its own
// with the optimizer state's placement, from which they are rounded when they are published.

/// Where this rank keeps a part of every unit.
struct WeightPlacements {
  dist::Placement stored;
  dist::Placement master;  ///< read where the weights have a master of their own
};

inline constexpr const char* kWeightsName = "weights";  ///< what the network reads

/// A unit's part of an array that rests on this rank from one update to the next.
struct RestingArray {
  std::string name;  ///< "weights", "master weights", "exp_avg"
  int unit = 0;
  StoredVector values;
  bool replicated = false;  ///< all ranks hold the same bits
};

/// The weights as those see them who fill, update and save them: their master.
class Weights {
 public:
  Weights(const ParameterTable& table, dist::Communicator& comm);
  virtual ~Weights() = default;
  Weights(const Weights&) = delete;
  Weights& operator=(const Weights&) = delete;

  /// This rank's slice of the unit's master, to be filled or updated in place; publish() makes it visible.
  [[nodiscard]] virtual Vector<float> my_slice(int unit) const = 0;
  /// All elements of the unit's master where it is replicated, to be updated in place by every rank alike.
  [[nodiscard]] virtual Vector<float> whole(int unit) const = 0;
  /// This rank's slices of all units, in unit order; `first` counts them as one flat array.
  [[nodiscard]] std::vector<UnitRange> my_ranges() const;

  /// What the network reads of the same elements. Who changes the master also writes these, or calls publish().
  [[nodiscard]] virtual StoredVector my_stored_slice(int unit) const = 0;
  [[nodiscard]] virtual StoredVector whole_stored(int unit) const = 0;

  /// Before slices change: no peer reads them any more.
  virtual void settle() = 0;
  /// After slices of the master changed: a replicated master is gathered anew, 16-bit weights are rounded from it, and
  /// what the network reads is shared.
  virtual void publish() = 0;
  /// After slices of master and rounded weights changed: replicated weights are gathered anew, gathered copies of
  /// sharded ones are forgotten. (A replicated master of 16-bit weights is not: it was updated everywhere.)
  virtual void share() = 0;

  /// What the network reads, and its master where that is another array.
  [[nodiscard]] virtual std::vector<RestingArray> at_rest() const = 0;
  /// Holds gathered copies of sharded weights, when they are released, to their owners' hashes: that of unit u's shard
  /// on rank r at [u * ranks + r]. An empty list ends it. Costs a wait for the device.
  virtual void watch_copies(std::vector<std::uint64_t> owners) = 0;
  /// The unit of the first copy that differed since then, "" where none did.
  [[nodiscard]] virtual std::string first_wrong_copy() const = 0;

  /// A hash of the master's bits that this rank owns, 52 bits wide, which a double carries: the same under every
  /// placement.
  [[nodiscard]] double hash_of_my_slices() const;

  [[nodiscard]] const std::string& unit_name(int unit) const { return table_.unit(unit).name; }
  [[nodiscard]] const Partition& partition(int unit) const { return partitions_[static_cast<std::size_t>(unit)]; }

 protected:
  [[nodiscard]] const ParameterTable& table() const { return table_; }
  [[nodiscard]] dist::Communicator& comm() const { return comm_; }
  /// Elements of a flat array of that placement on this rank.
  [[nodiscard]] std::int64_t extent(dist::Placement placement) const;
  /// This rank's slice of a unit in such an array.
  template <class T>
  [[nodiscard]] Vector<T> slice_in(const Vector<T>& flat, dist::Placement placement, int unit) const;
  /// The whole of a unit in a replicated one.
  template <class T>
  [[nodiscard]] Vector<T> unit_in(const Vector<T>& flat, int unit) const;
  /// Starts to gather every rank's slice of a unit into `whole`.
  template <class T>
  dist::Pending start_gather(int unit, const Vector<T>& slice, const Vector<T>& whole) const;
  /// Does all of it.
  template <class T>
  void gather(int unit, const Vector<T>& slice, const Vector<T>& whole) const;

 private:
  const ParameterTable& table_;
  dist::Communicator& comm_;
  std::vector<Partition> partitions_;  // by unit
  std::vector<std::int64_t> first_;    // by unit: where its slice begins in a sharded flat array
};

/// The same, and what a model of that type reads.
template <class Scalar>
class WeightsOf final : public Weights {
 public:
  /// Takes the memory of their placements from `ledger`. Of sharded ones `prefetch_units` are gathered ahead.
  WeightsOf(const ParameterTable& table, dist::Communicator& comm, WeightPlacements placements, MemoryLedger& ledger,
            int prefetch_units = 0);

  /// All elements of the unit, valid until release. Throws Error(internal) where the unit or its slot is held.
  Vector<const Scalar> acquire(int unit);
  void release(int unit);

  [[nodiscard]] Vector<float> my_slice(int unit) const override;
  [[nodiscard]] Vector<float> whole(int unit) const override;
  [[nodiscard]] StoredVector my_stored_slice(int unit) const override;
  [[nodiscard]] StoredVector whole_stored(int unit) const override;
  void settle() override;
  void publish() override;
  void share() override;
  [[nodiscard]] std::vector<RestingArray> at_rest() const override;
  void watch_copies(std::vector<std::uint64_t> owners) override;
  [[nodiscard]] std::string first_wrong_copy() const override { return wrong_copy_; }

 private:
  [[nodiscard]] bool sharded() const { return placements_.stored == dist::Placement::sharded; }
  [[nodiscard]] bool whole_master() const { return placements_.master == dist::Placement::replicated; }
  /// Rounds what this rank has of a unit's master; of replicated weights the others' slices may still be old.
  void round(int unit) const;
  /// Of a unit that is gathered and held.
  void check_copy(int unit);

  WeightPlacements placements_;
  Vector<Scalar> flat_;                            // replicated: table extent; sharded: this rank's slices
  Vector<float> master_;                           // flat_ itself in f32
  std::optional<GatheredUnits<Scalar>> gathered_;  // sharded only
  std::vector<bool> held_;                         // by unit
  std::vector<std::uint64_t> owners_;              // hashes of shards, while copies are watched
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
