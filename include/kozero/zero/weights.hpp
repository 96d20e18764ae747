// SPDX-FileCopyrightText: The KoZeRO authors
// SPDX-License-Identifier: Apache-2.0
// weights.hpp: a model's weights under a placement: the float master, and the array that the model reads.
//   replicated: acquire(u) is a view of the array
//   sharded:    acquire(u) all-gathers unit u, on the schedule of GatheredUnits
// In f32 the master is the array that the model reads. For 16-bit weights the master is a separate array with the
// optimizer state's placement, and publish() rounds the 16-bit array from the master. Weights that are not trained (the
// base of adapters, and all weights of an evaluation) have no separate master: put() rounds their values once.
#pragma once
#include <optional>
#include <span>
#include <string>
#include <vector>

#include <kozero/core/error.hpp>
#include <kozero/core/ledger.hpp>
#include <kozero/core/parameter_access.hpp>
#include <kozero/core/parameter_table.hpp>
#include <kozero/core/precision.hpp>
#include <kozero/distributed/distributed_array.hpp>
#include <kozero/zero/gathered_units.hpp>
#include <kozero/zero/placement_row.hpp>
#include <kozero/zero/quantized_base.hpp>

namespace kozero::zero {

/// The placements of the array that the model reads and of the master.
struct WeightPlacements {
  distributed::Placement stored;
  distributed::Placement master;  ///< used only for 16-bit weights, which have a separate master
  bool keeps_master = true;       ///< false: they have none, since they are not trained
};

/// Memory outside the device for parts of the state; nullptr: the device's memory.
struct StateMemory {
  MemorySource* optimizer = nullptr;   ///< for the master and the optimizer's states
  MemorySource* parameters = nullptr;  ///< for the weights that the model reads
};

inline constexpr const char* kWeightsName = "weights";  ///< the array that the model reads

/// The part of a unit that this rank keeps unchanged from one update to the next, in one array.
struct RestingArray {
  std::string name;  ///< "weights", "master weights", "exp_avg"
  int unit = 0;
  Vector<std::uint32_t> words;  ///< the part's bits
  bool replicated = false;      ///< all ranks hold the same bits
};

/// Adds to each tensor's hash that of its bits in `values`, the unit's elements from `begin` on. Hashes of all elements
/// added in any order are the tensor's.
void add_tensor_hashes(const ParameterTable& table, int unit, std::int64_t begin, const Vector<const float>& values,
                       std::span<std::uint64_t> hashes);

/// A hash of each tensor's bits, in the table's order: the same under every placement and on any number of ranks.
/// Collective.
std::vector<std::uint64_t> tensor_hashes(const ParameterTable& table,
                                         const distributed::DistributedArray<float>& master);

/// The weights of a model that reads weights as Scalar.
template <class Scalar>
class Weights {
 public:
  /// Takes memory from `ledger`, or from `memory`, which outlives the weights. `order` is used for sharded weights
  /// only.
  Weights(const ParameterTable& table, const distributed::Mesh& mesh, WeightPlacements placements, MemoryLedger& ledger,
          GatherOrder order = {}, StateMemory memory = {}, BaseType base = BaseType::as_weights);
  Weights(const Weights&) = delete;  // gathered_ refers to stored_
  Weights& operator=(const Weights&) = delete;

  /// All elements of the unit, valid until release. Throws Error(internal) if the unit or its buffer is held.
  Vector<const Scalar> acquire(int unit);
  void release(int unit);

  /// For initialization, the optimizer and checkpoints: shard(unit) and, if the master is replicated, full(unit) may
  /// be filled or updated in place. publish() then makes the change visible.
  [[nodiscard]] const distributed::DistributedArray<float>& master() const;
  /// The array that the model reads. Code that changes the master either writes the same elements here (shard(unit), or
  /// full(unit) if the master is replicated), or calls publish().
  [[nodiscard]] const distributed::DistributedArray<Scalar>& stored() const { return stored_; }

  /// Sets the unit's elements from `begin` on, all in this rank's shard, before publish(): in the master, or for a unit
  /// without one in the array that the model reads, rounded.
  void put(int unit, std::int64_t begin, const HostVector<const float>& values) const;
  /// The unit's elements that put() needs on this rank: its shard, or somewhat more of a quantized base.
  [[nodiscard]] UnitRange range_to_put(int unit) const;

  /// Whether the unit's values are in the master.
  [[nodiscard]] bool is_in_master(int unit) const {
    const bool is_separate = has_master<Scalar>;
    return !is_quantized(unit) && (!is_separate || (keeps_master_ && !table_.unit(unit).is_base));
  }

  /// Returns when no peer reads this rank's shards any more, so that they may change.
  void wait_until_reusable();
  /// After shards of the master changed: gathers a replicated master, rounds 16-bit weights from the master, and makes
  /// the new weights visible to every rank.
  void publish();
  /// After shards of master and rounded weights of these units changed: gathers replicated weights, or drops the
  /// gathered copies of sharded weights. (Does not gather a replicated master of 16-bit weights: every rank updated all
  /// of it.)
  void share(const std::vector<int>& units);

  /// The weights that the model reads, and the master if it is a separate array.
  [[nodiscard]] std::vector<RestingArray> at_rest() const;
  /// From now on compares each gathered copy of sharded weights, at its release, with its owners' hashes: the hash of
  /// unit u's shard on rank r is owners[u * ranks + r]. An empty list ends the comparison. Costs waits for the device.
  void watch_copies(std::vector<std::uint64_t> owners);
  /// The unit of the first copy that differed since watch_copies(), "" if none did.
  [[nodiscard]] const std::string& first_wrong_copy() const { return wrong_copy_; }

 private:
  [[nodiscard]] bool is_quantized(int unit) const { return is_quantized_ && table_.unit(unit).is_base; }
  /// Rounds this rank's part of a unit's master. Other ranks' shards of replicated weights may still be old.
  void round(int unit) const;
  /// Compares the copy of a unit that is gathered and held.
  void check_copy(int unit);

  const ParameterTable& table_;
  bool keeps_master_;
  bool is_quantized_;  // the base, whose units have no elements in stored_
  distributed::DistributedArray<Scalar> stored_;
  distributed::DistributedArray<Scalar> stored_shards_;         // a view of stored_
  std::optional<distributed::DistributedArray<float>> master_;  // empty in f32
  std::optional<GatheredUnits<Scalar>> gathered_;               // sharded only
  std::optional<QuantizedBase<Scalar>> quantized_;
  std::vector<bool> held_;             // by unit
  std::vector<std::uint64_t> owners_;  // hashes of shards, while copies are watched
  std::string wrong_copy_;
};

}  // namespace kozero::zero
