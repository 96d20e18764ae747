// SPDX-FileCopyrightText: The KoZeRO authors
// SPDX-License-Identifier: Apache-2.0
// distributed_array.hpp: an array of all units of a ParameterTable on a mesh of ranks, with a placement; and
// redistribute, through which all weights and gradients travel. S is the size of a unit in bytes, n the number of
// ranks.
//   Replicated: all ranks hold all of it, equal.  Sharded: each holds its shard.  Partial: each holds an addend.
//   redistribute(source, destination, unit):
//     Partial    -> Sharded     reduce-scatter, in rank order           S(n-1)/n bytes sent per rank
//     Sharded    -> Replicated  all-gather                              S(n-1)/n
//     Partial    -> Replicated  reduce-scatter, then all-gather         2S(n-1)/n
//     Replicated -> Sharded     none: keeps the local shard             0
//     equal placements          none: a local copy                      0
// On a mesh of G groups of g ranks a shard is one of g, and each group has them all. A sum goes through all ranks in
// rank order, as without groups, and so ends in the last group:
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
#include <kozero/dist/communicator.hpp>

namespace kozero::dist {

/// in_last_group: sharded over the last group; the shards of the others hold nothing yet. Of one group: sharded.
enum class Placement { replicated, sharded, partial, in_last_group };

/// The ranks as groups of equally many consecutive ones. Arrays are sharded over the ranks of a group, and replicated
/// over the groups.
class Mesh {
 public:
  /// All ranks are one group.
  Mesh(Communicator& all) : all_(&all), group_(&all) {}  // NOLINT(google-explicit-constructor): most meshes are this
  /// `group`: the ranks of this rank's group. `replicas`: those with its index in every group, in order of the groups.
  /// Throws Error(internal) where these are not the two axes of `all`.
  Mesh(Communicator& all, Communicator& group, Communicator& replicas);

  [[nodiscard]] Communicator& all() const { return *all_; }
  [[nodiscard]] Communicator& group() const { return *group_; }
  /// Throws Error(internal) where all ranks are one group.
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
  MemorySource* source = nullptr;  ///< of the memory: the communicator, so that peers read it without a copy, a disk
  std::optional<int> ahead = {};   ///< whole units share the buffers of SlotBuffers(table, ahead, held)
  int held = 1;
};

template <class T>
class DistributedArray {
 public:
  /// Takes the memory from `ledger`: the shards of this rank for a sharded array, else all units, or their buffers.
  DistributedArray(const ParameterTable& table, const Mesh& mesh, Placement placement, const Storage& storage,
                   MemoryLedger& ledger);

  /// The same memory under another placement, for collectives in place: the shards inside whole units, or the gathered
  /// units where the addends were. Throws Error(internal) where a sharded array is to be whole.
  [[nodiscard]] DistributedArray viewed_as(Placement placement) const;

  [[nodiscard]] Placement placement() const { return placement_; }
  [[nodiscard]] const Mesh& mesh() const { return mesh_; }
  /// Of the ranks that the shards are distributed over.
  [[nodiscard]] Communicator& comm() const { return mesh_.group(); }
  [[nodiscard]] const ShardLayout& layout() const { return layout_; }
  [[nodiscard]] int num_units() const { return static_cast<int>(shards_.size()); }

  /// The elements of a unit that this rank owns.
  [[nodiscard]] Vector<T> shard(int unit) const { return shards_.at(static_cast<std::size_t>(unit)); }
  /// All elements of a unit. Throws Error(internal) for an array of shards.
  [[nodiscard]] Vector<T> full(int unit) const;
  /// What this rank holds of a unit: its shard, or all of it.
  [[nodiscard]] Vector<T> local(int unit) const;

  /// Which buffer a whole unit lies in; units with the same number overwrite each other.
  [[nodiscard]] std::size_t buffer(int unit) const { return buffer_of_.at(static_cast<std::size_t>(unit)); }
  [[nodiscard]] std::size_t num_buffers() const { return num_buffers_; }

 private:
  Mesh mesh_;
  Placement placement_;
  ShardLayout layout_;             // over the ranks of a group
  std::vector<Vector<T>> full_;    // by unit; none in an array of shards
  std::vector<Vector<T>> shards_;  // by unit
  std::vector<std::size_t> buffer_of_;
  std::size_t num_buffers_ = 0;
};

/// A redistribution that was started. All ranks start, wait for and reuse in the same order. Until wait() returns, the
/// source's and the destination's unit belong to the redistribution.
template <class T>
class Transfer {
 public:
  /// Of nothing: no wait takes time.
  Transfer() = default;

  /// Returns when the destination's unit holds the result; on a device, when the kernels launched after it will see it.
  void wait();
  /// Returns when no peer reads the source's or the destination's unit any more: both may be overwritten.
  void wait_until_reusable();
  /// Whether it was started and wait() was not called.
  [[nodiscard]] bool is_under_way() const { return state_ == State::started; }

 private:
  template <class U>
  friend Transfer<U> redistribute(const DistributedArray<U>&, const DistributedArray<U>&, int, Fold);

  enum class State { reusable, started, arrived };

  /// The collective from where the unit is to the next placement on its way.
  void start_next();

  const Mesh* mesh_ = nullptr;
  Communicator* comm_ = nullptr;  // that the newest collective is of
  Partition partition_{0, 1};     // of the unit over a group
  State state_ = State::reusable;
  Pending pending_ = {};
  Placement at_ = Placement::replicated;  // when the newest collective is over
  Placement goal_ = Placement::replicated;
  Vector<T> addend_;  // to be added to the shard then
  Vector<T> from_;    // the shard that travels
  Vector<T> shard_;   // of the destination
  Vector<T> full_;
};

/// Fills the unit of `destination` from that of `source`; both have the same mesh and table, and outlive the
/// transfer. `fold` says which ranks' addends are summed, and whether onto what the destination's shard holds (Partial
/// -> Sharded or InLastGroup only, in shards apart from the addends). A back end that does not add in order
/// (Communicator::adds_in_order) adds all ranks' addends, and then, where the fold is onto, their sum, which overwrites
/// the source's shard. Throws Error(internal) for a destination that is Partial, and for a fold onto other placements
/// or the source's own shard.
template <class T>
Transfer<T> redistribute(const DistributedArray<T>& source, const DistributedArray<T>& destination, int unit,
                         Fold fold = {});

/// All units, one after another: each travels while the next is started. Returns when all memory may be overwritten.
template <class T>
void redistribute(const DistributedArray<T>& source, const DistributedArray<T>& destination);
/// The same of the first `num_units`.
template <class T>
void redistribute_first(const DistributedArray<T>& source, const DistributedArray<T>& destination, int num_units);

}  // namespace kozero::dist
