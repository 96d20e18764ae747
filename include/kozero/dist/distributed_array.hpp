// SPDX-FileCopyrightText: The KoZeRO authors
// SPDX-License-Identifier: Apache-2.0
// distributed_array.hpp: a flat array on a group of ranks, with a placement; and the one door to communication.
//   Replicated: all ranks hold all of it, equal.  Sharded: each holds its slice.  Partial: each a full-size addend.
//   redistribute(source, destination):
//     Partial    -> Sharded     reduce-scatter                      S(n-1)/n bytes sent per rank
//     Sharded    -> Replicated  all-gather                          S(n-1)/n
//     Partial    -> Replicated  reduce-scatter, then all-gather     2S(n-1)/n
//     Replicated -> Sharded     none: keep my slice
// Arrays do not own memory: the slice of a Sharded array may be its rank's part of a full buffer (in place).
#pragma once
#include <kozero/core/views.hpp>
#include <kozero/dist/communicator.hpp>

namespace kozero::dist {

enum class Placement { replicated, sharded, partial };

template <class T>
class DistributedArray {
 public:
  /// `local`: the whole extent for replicated and partial, partition.size(rank) elements for sharded.
  /// Throws Error(internal) where the extents disagree.
  DistributedArray(Communicator& comm, Partition partition, Placement placement, Vector<T> local);

  [[nodiscard]] Communicator& comm() const { return *comm_; }
  [[nodiscard]] const Partition& partition() const { return partition_; }
  [[nodiscard]] Placement placement() const { return placement_; }
  [[nodiscard]] const Vector<T>& local() const { return local_; }
  /// This rank's slice, wherever it lies.
  [[nodiscard]] Vector<T> my_slice() const;

 private:
  Communicator* comm_;
  Partition partition_;
  Placement placement_;
  Vector<T> local_;
};

/// Fills `destination` from `source`. Both have the same communicator and partition. Throws Error(internal) for a pair
/// that has no meaning (anything -> Partial).
template <class T>
void redistribute(const DistributedArray<T>& source, DistributedArray<T>& destination);

/// The start of it, for the pairs that are one collective; the communicator's finish and reclaim are the rest.
template <class T>
Pending start_redistribute(const DistributedArray<T>& source, DistributedArray<T>& destination);

}  // namespace kozero::dist
