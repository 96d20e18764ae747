// SPDX-FileCopyrightText: The KoZeRO authors
// SPDX-License-Identifier: Apache-2.0
// distributed_array.hpp: an array of all units of a ParameterTable on a group of ranks, with a placement; and
// redistribute, through which all weights and gradients travel. S is the size of a unit in bytes, n the number of ranks.
//   Replicated: all ranks hold all of it, equal.  Sharded: each holds its shard.  Partial: each holds an addend.
//   redistribute(source, destination, unit):
//     Partial    -> Sharded     reduce-scatter, in rank order           S(n-1)/n bytes sent per rank
//     Sharded    -> Replicated  all-gather                              S(n-1)/n
//     Partial    -> Replicated  reduce-scatter, then all-gather         2S(n-1)/n
//     Replicated -> Sharded     none: keeps the local shard             0
//     equal placements          none: a local copy                      0
// Partial arrays hold float.
#pragma once
#include <optional>
#include <string>
#include <vector>

#include <kozero/core/ledger.hpp>
#include <kozero/core/views.hpp>
#include <kozero/dist/communicator.hpp>

namespace kozero::dist {

enum class Placement { replicated, sharded, partial };

/// How an array's memory is booked, and whether units share buffers.
struct Storage {
  Memory category;
  std::string label;
  MemorySource* source = nullptr;  ///< of the memory: the communicator, so that peers read it without a copy, a disk
  std::optional<int> ahead = {};  ///< whole units share the buffers of SlotBuffers(table, ahead)
};

template <class T>
class DistributedArray {
 public:
  /// Takes the memory from `ledger`: the shards of this rank for a sharded array, else all units, or their buffers.
  DistributedArray(const ParameterTable& table, Communicator& comm, Placement placement, const Storage& storage,
                   MemoryLedger& ledger);

  /// The same memory under another placement, for collectives in place: the shards inside whole units, or the gathered
  /// units where the addends were. Throws Error(internal) where a sharded array is to be whole.
  [[nodiscard]] DistributedArray viewed_as(Placement placement) const;

  [[nodiscard]] Placement placement() const { return placement_; }
  [[nodiscard]] Communicator& comm() const { return *comm_; }
  [[nodiscard]] const ShardLayout& layout() const { return layout_; }
  [[nodiscard]] int num_units() const { return static_cast<int>(shards_.size()); }

  /// The elements of a unit that this rank owns.
  [[nodiscard]] Vector<T> shard(int unit) const { return shards_.at(static_cast<std::size_t>(unit)); }
  /// All elements of a unit. Throws Error(internal) for a sharded array.
  [[nodiscard]] Vector<T> full(int unit) const;
  /// What this rank holds of a unit: its shard, or all of it.
  [[nodiscard]] Vector<T> local(int unit) const;

  /// Which buffer a whole unit lies in; units with the same number overwrite each other.
  [[nodiscard]] std::size_t buffer(int unit) const { return buffer_of_.at(static_cast<std::size_t>(unit)); }
  [[nodiscard]] std::size_t num_buffers() const { return num_buffers_; }

 private:
  Communicator* comm_;
  Placement placement_;
  ShardLayout layout_;
  std::vector<Vector<T>> full_;    // by unit; none where sharded
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
  enum class Then { nothing, add, gather };

  Communicator* comm_ = nullptr;
  const Partition* partition_ = nullptr;
  State state_ = State::reusable;
  Pending pending_ = {};
  Then then_ = Then::nothing;  // what wait() does with `from_` when the collective is over
  Vector<T> from_;
  Vector<T> to_;
};

/// Fills the unit of `destination` from that of `source`; both have the same communicator and table, and outlive the
/// transfer. `fold` says which ranks' addends are summed, and whether onto what the destination's shard holds (Partial
/// -> Sharded only, in shards apart from the addends). A back end that does not add in order
/// (Communicator::adds_in_order) adds all ranks' addends, and then, where the fold is onto, their sum, which overwrites
/// the source's shard. Throws Error(internal) for a destination that is Partial, and for a fold onto other placements
/// or the source's own shard.
template <class T>
Transfer<T> redistribute(const DistributedArray<T>& source, const DistributedArray<T>& destination, int unit,
                         Fold fold = {});

}  // namespace kozero::dist
