// SPDX-FileCopyrightText: The KoZeRO authors
// SPDX-License-Identifier: Apache-2.0
// weights.hpp: a model's weights under a placement: the float master and what the model reads.
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
// The master is in float. In f32 it is the array that the model reads. For 16-bit weights it is an array of its own
// with the optimizer state's placement, and the 16-bit array is rounded from it when the weights are published.

/// The placements of the array that the model reads and of the master.
struct WeightPlacements {
  dist::Placement stored;
  dist::Placement master;  ///< used only where the weights have a master of their own
};

/// What lies elsewhere than the device's memory; nullptr: there.
struct StateMemory {
  MemorySource* optimizer = nullptr;   ///< the master, and the optimizer's states
  MemorySource* parameters = nullptr;  ///< what the model reads
};

inline constexpr const char* kWeightsName = "weights";  ///< what the model reads

/// A unit's part of an array that rests on this rank from one update to the next.
struct RestingArray {
  std::string name;  ///< "weights", "master weights", "exp_avg"
  int unit = 0;
  Vector<std::uint32_t> words;  ///< its bits
  bool replicated = false;      ///< all ranks hold the same ones
};

/// A hash of each tensor's bits, in the table's order: the same under every placement and on any number of ranks.
/// Collective.
std::vector<std::uint64_t> tensor_hashes(const ParameterTable& table, const dist::DistributedArray<float>& master);

/// The weights of a model that reads them as Scalar.
template <class Scalar>
class Weights {
 public:
  /// Takes the memory of their placements from `ledger`, or from `memory`, which outlives them; `order` is of sharded
  /// weights.
  Weights(const ParameterTable& table, const dist::Mesh& mesh, WeightPlacements placements, MemoryLedger& ledger,
          GatherOrder order = {}, StateMemory memory = {});
  Weights(const Weights&) = delete;  // the gathered units refer to what it stores
  Weights& operator=(const Weights&) = delete;

  /// All elements of the unit, valid until release. Throws Error(internal) where the unit or its slot is held.
  Vector<const Scalar> acquire(int unit);
  void release(int unit);

  /// For initialization, the optimizer and checkpoints: shard(unit) and, where the master is replicated, full(unit) may
  /// be filled or updated in place. publish() then makes the change visible.
  [[nodiscard]] const dist::DistributedArray<float>& master() const;
  /// What the model reads. Code that changes the master also writes its shard(unit), or full(unit) where it is
  /// replicated; or it calls publish().
  [[nodiscard]] const dist::DistributedArray<Scalar>& stored() const { return stored_; }

  /// Returns when no peer reads this rank's shards any more: they may change.
  void wait_until_reusable();
  /// After shards of the master changed: a replicated master is gathered again, 16-bit weights are rounded from it, and
  /// what the model reads is shared.
  void publish();
  /// After shards of master and rounded weights changed: replicated weights are gathered again, gathered copies of
  /// sharded ones are dropped. (A replicated master of 16-bit weights is not gathered: every rank updated all of it.)
  void share();

  /// What the model reads, and its master where that is another array.
  [[nodiscard]] std::vector<RestingArray> at_rest() const;
  /// Compares gathered copies of sharded weights, when they are released, with their owners' hashes: the hash of unit
  /// u's shard on rank r at [u * ranks + r]. An empty list ends it. Costs a wait for the device.
  void watch_copies(std::vector<std::uint64_t> owners);
  /// The unit of the first copy that differed since then, "" where none did.
  [[nodiscard]] const std::string& first_wrong_copy() const { return wrong_copy_; }

 private:
  /// Rounds what this rank has of a unit's master; other ranks' shards of replicated weights may still be old.
  void round(int unit) const;
  /// Of a unit that is gathered and held.
  void check_copy(int unit);

  const ParameterTable& table_;
  dist::DistributedArray<Scalar> stored_;
  dist::DistributedArray<Scalar> stored_shards_;         // of the same memory
  std::optional<dist::DistributedArray<float>> master_;  // none in f32
  std::optional<GatheredUnits<Scalar>> gathered_;        // sharded only
  std::vector<bool> held_;                               // by unit
  std::vector<std::uint64_t> owners_;                    // hashes of shards, while copies are watched
  std::string wrong_copy_;
};

}  // namespace kozero::zero
