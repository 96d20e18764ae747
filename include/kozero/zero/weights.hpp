// SPDX-FileCopyrightText: The KoZeRO authors
// SPDX-License-Identifier: Apache-2.0
// weights.hpp: the parameters of all units, replicated or sharded, and the gathering of a unit before its use.
//   replicated: one flat array of the table's extent; acquire(u) is a view of it.
//   sharded:    this rank's slices in unit order; acquire(u) all-gathers unit u into the buffer of u's slot.
// A gathered unit stays in its slot until another unit needs the slot or the weights change, so that the last block of
// forward is not gathered again for backward, and a tied embedding is gathered once a step.
#pragma once
#include <vector>

#include <kozero/core/ledger.hpp>
#include <kozero/core/parameter_table.hpp>
#include <kozero/core/unit_range.hpp>
#include <kozero/dist/distributed_array.hpp>

namespace kozero::zero {

class Weights {
 public:
  /// Takes the memory of its placement (replicated or sharded) from `ledger`.
  Weights(const ParameterTable& table, dist::Communicator& comm, dist::Placement placement, MemoryLedger& ledger);

  /// All elements of the unit, valid until release. Throws Error(internal) where the unit or its slot is held.
  Vector<const float> acquire(int unit);
  void release(int unit);

  /// This rank's slice of the unit, to be filled or updated in place; publish() makes it visible.
  [[nodiscard]] Vector<float> my_slice(int unit) const;
  /// This rank's slices of all units, in unit order; `first` counts them as one flat array.
  [[nodiscard]] std::vector<UnitRange> my_ranges() const;
  /// All elements of a replicated unit, to be updated in place by every rank alike.
  [[nodiscard]] Vector<float> whole(int unit) const;

  /// After slices changed: replicated weights are gathered anew; gathered copies of sharded ones are forgotten.
  void publish();
  /// After whole units changed alike on every rank: nothing moves.
  void forget_gathered();

  /// The name of the first unit whose replicas are not equal in bits on all ranks, "" where all are, or where weights
  /// are sharded and have none. Collective.
  [[nodiscard]] std::string first_unequal_replica() const;

  /// A hash of the bits this rank owns, 52 bits wide: the same under every placement.
  [[nodiscard]] double hash_of_my_slices() const;

  [[nodiscard]] const Partition& partition(int unit) const { return partitions_[static_cast<std::size_t>(unit)]; }

 private:
  [[nodiscard]] bool sharded() const { return placement_ == dist::Placement::sharded; }
  [[nodiscard]] dist::DistributedArray<float> shard(int unit) const;
  void gather_into(int unit, const Vector<float>& whole) const;

  const ParameterTable& table_;
  dist::Communicator& comm_;
  dist::Placement placement_;
  std::vector<Partition> partitions_;      // by unit
  std::vector<std::int64_t> first_;        // by unit: where its slice begins in a sharded flat array
  Vector<float> flat_;                     // replicated: table extent; sharded: this rank's slices
  std::vector<Vector<float>> slots_;       // by slot, sharded only
  std::vector<int> in_slot_;               // by slot: the unit gathered there, or -1
  std::vector<bool> held_;                 // by unit
};

}  // namespace kozero::zero
