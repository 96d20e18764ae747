// SPDX-FileCopyrightText: The KoZeRO authors
// SPDX-License-Identifier: Apache-2.0
// distributed_array.hpp: an array of all units of a ParameterTable on a mesh of ranks, with a placement; and
// redistribute, which moves all weights and gradients between placements. S is the size of a unit in bytes, n the
// number of ranks.
//   Replicated: each rank has the whole unit.  Sharded: each rank has its shard.  Partial: each rank has an addend.
//   redistribute(source, destination, unit):
//     Partial    -> Sharded     reduce-scatter, in rank order           S(n-1)/n bytes sent per rank
//     Sharded    -> Replicated  all-gather                              S(n-1)/n
//     Partial    -> Replicated  reduce-scatter, then all-gather         2S(n-1)/n
//     Replicated -> Sharded     none: keeps the local shard             0
//     equal placements          none: a local copy                      0
// On a mesh of G groups of g ranks a unit has g shards, and each group has all of them. A sum adds all ranks in rank
// order, as without groups, and therefore ends in the last group:
//     Partial     -> InLastGroup  reduce-scatter of all ranks           S, or S(g-1)/g in the last group
//     InLastGroup -> Sharded      to the replicas                       S(G-1)/g by the last group, 0 by the others
//     Sharded     -> Replicated   all-gather in each group              S(g-1)/g
// Partial arrays hold float.
#pragma once
#include <optional>
#include <string>
#include <vector>

#include <kozero/core/ledger.hpp>
#include <kozero/core/views.hpp>
#include <kozero/distributed/communicator.hpp>

namespace kozero::distributed {

/// in_last_group: sharded over the last group, while the other groups' shards are undefined. With one group: sharded.
enum class Placement { replicated, sharded, partial, in_last_group };

/// The ranks in groups of equally many consecutive ranks. Arrays are sharded over the ranks of a group and replicated
/// over the groups.
class Mesh {
 public:
  /// All ranks are one group.
  Mesh(Communicator& all) : all_(&all), group_(&all) {}  // NOLINT(google-explicit-constructor): the usual mesh
  /// `group`: the ranks of this rank's group. `replicas`: the ranks with this rank's index in every group, in order of
  /// the groups. Throws Error(internal) unless `group` and `replicas` are the two axes of `all`.
  Mesh(Communicator& all, Communicator& group, Communicator& replicas);

  [[nodiscard]] Communicator& all() const { return *all_; }
  [[nodiscard]] Communicator& group() const { return *group_; }
  /// Throws Error(internal) if all ranks are one group.
  [[nodiscard]] Communicator& replicas() const;
  [[nodiscard]] int num_groups() const { return replicas_ == nullptr ? 1 : replicas_->size(); }
  [[nodiscard]] bool is_first_group() const { return replicas_ == nullptr || replicas_->rank() == 0; }
  [[nodiscard]] bool is_last_group() const {
    return replicas_ == nullptr || replicas_->rank() + 1 == replicas_->size();
  }
  [[nodiscard]] bool operator==(const Mesh&) const = default;

 private:
  Communicator* all_;
  Communicator* group_;
  Communicator* replicas_ = nullptr;
};

/// How an array's memory is booked, and whether units share buffers.
struct Storage {
  Memory category;
  std::string label;
  MemorySource* source = nullptr;  ///< the communicator (peers read without a copy), a disk
  std::optional<int> ahead = {};   ///< set: whole units share SlotBuffers(table, ahead, held)
  int held = 1;
};

template <class T>
class DistributedArray {
 public:
  /// Allocates from `ledger`: for a sharded array this rank's shards, else all units or their shared buffers.
  DistributedArray(const ParameterTable& table, const Mesh& mesh, Placement placement, const Storage& storage,
                   MemoryLedger& ledger);

  /// The same memory under another placement, for collectives in place: the shards inside whole units, or gathered
  /// units in the memory of the addends. Throws Error(internal) for a view of a sharded array as whole units.
  [[nodiscard]] DistributedArray viewed_as(Placement placement) const;

  [[nodiscard]] Placement placement() const { return placement_; }
  [[nodiscard]] const Mesh& mesh() const { return mesh_; }
  /// The communicator over which the array is sharded: this rank's group.
  [[nodiscard]] Communicator& comm() const { return mesh_.group(); }
  [[nodiscard]] const ShardLayout& layout() const { return layout_; }
  [[nodiscard]] int num_units() const { return static_cast<int>(shards_.size()); }

  /// The elements of a unit that this rank owns.
  [[nodiscard]] Vector<T> shard(int unit) const { return shards_.at(static_cast<std::size_t>(unit)); }
  /// All elements of a unit. Throws Error(internal) for an array of shards.
  [[nodiscard]] Vector<T> full(int unit) const;
  /// This rank's memory of a unit: the shard, or all elements.
  [[nodiscard]] Vector<T> local(int unit) const;

  /// The number of a unit's buffer in SlotBuffers; units with the same number overwrite each other.
  [[nodiscard]] std::size_t buffer(int unit) const { return buffer_of_.at(static_cast<std::size_t>(unit)); }
  [[nodiscard]] std::size_t num_buffers() const { return num_buffers_; }

 private:
  Mesh mesh_;
  Placement placement_;
  ShardLayout layout_;             // over the ranks of a group
  std::vector<Vector<T>> full_;    // by unit; empty in an array of shards
  std::vector<Vector<T>> shards_;  // by unit
  std::vector<std::size_t> buffer_of_;
  std::size_t num_buffers_ = 0;
};

/// A redistribution that was started. All ranks make the same calls in the same order. Until wait() returns, the unit's
/// memory in source and destination must not be touched.
template <class T>
class Transfer {
 public:
  /// An empty transfer, whose waits return at once.
  Transfer() = default;

  /// Returns when the destination's unit has the result; on a device, when kernels launched later will see the
  /// result.
  void wait();
  /// Returns when no peer reads the unit in source or destination any more: both may be overwritten.
  void wait_until_reusable();
  /// Whether the transfer was started and wait() was not called yet.
  [[nodiscard]] bool is_under_way() const { return state_ == State::started; }

 private:
  template <class U>
  friend Transfer<U> redistribute(const DistributedArray<U>&, const DistributedArray<U>&, int, Fold);

  enum class State { reusable, started, arrived };

  /// Starts the collective from the unit's current placement to the next one before the goal.
  void start_next();

  const Mesh* mesh_ = nullptr;
  Communicator* comm_ = nullptr;  // of the newest collective
  Partition partition_{0, 1};     // of the unit over a group
  State state_ = State::reusable;
  Pending pending_ = {};
  Placement at_ = Placement::replicated;  // after the newest collective
  Placement goal_ = Placement::replicated;
  Vector<T> addend_;  // added to the shard after the reduction
  Vector<T> from_;    // the shard that is sent
  Vector<T> shard_;   // of the destination
  Vector<T> full_;
};

/// Starts to fill a unit of `destination` from the same unit of `source`; both have the same mesh and table, and
/// outlive the transfer. `fold` selects the ranks whose addends are summed. With fold.onto the sum is added to the
/// destination's shard, which must be disjoint from the addends (Partial -> Sharded or InLastGroup only). If the back
/// end does not add in rank order (Communicator::adds_in_order), all ranks' addends are summed, and with fold.onto that
/// sum overwrites the source's shard before it is added. Throws Error(internal) for a Partial destination, for a
/// destination InLastGroup whose source is neither Partial nor InLastGroup, and for fold.onto with other placements or
/// with the source's own shard.
template <class T>
Transfer<T> redistribute(const DistributedArray<T>& source, const DistributedArray<T>& destination, int unit,
                         Fold fold = {});

/// Redistributes all units, each while the next one is started. Returns when all memory may be overwritten.
template <class T>
void redistribute(const DistributedArray<T>& source, const DistributedArray<T>& destination);
/// The same for the units in `units`.
template <class T>
void redistribute_units(const DistributedArray<T>& source, const DistributedArray<T>& destination,
                        const std::vector<int>& units);

}  // namespace kozero::distributed
