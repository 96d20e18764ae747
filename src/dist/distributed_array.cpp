// SPDX-FileCopyrightText: The KoZeRO authors
// SPDX-License-Identifier: Apache-2.0
// distributed_array.cpp: placements, and the collective of each pair of them.
#include <type_traits>
#include <utility>

#include <kozero/core/error.hpp>
#include <kozero/core/precision.hpp>
#include <kozero/dist/distributed_array.hpp>

namespace kozero::dist {
namespace {

template <class T>
void copy(const Vector<T>& from, const Vector<T>& to) {
  if (from.data() != to.data() && from.extent(0) > 0) Kokkos::deep_copy(Device(), to, from);
}

template <class T>
Pending start_reduce(const DistributedArray<T>& source, const Vector<T>& slice) {
  if constexpr (std::is_same_v<T, float>) {
    return source.comm().start_reduce_scatter(source.local().data(), slice.data(), source.partition());
  } else {
    throw Error(Failure::internal, "redistribute: partial sums are stored and added in float");
  }
}

template <class T>
Pending start_gather(const Vector<T>& slice, const DistributedArray<T>& destination) {
  return destination.comm().start_all_gather(slice.data(), destination.local().data(), destination.partition(),
                                             sizeof(T));
}

void complete(Communicator& comm, Pending pending) {
  comm.finish(pending);
  comm.reclaim(pending);
}

template <class T>
void require_alike(const DistributedArray<T>& source, const DistributedArray<T>& destination) {
  require(&source.comm() == &destination.comm() && source.partition().extent() == destination.partition().extent(),
          "redistribute: the arrays have different communicators or extents");
}

}  // namespace

template <class T>
DistributedArray<T>::DistributedArray(Communicator& comm, Partition partition, Placement placement, Vector<T> local)
    : comm_(&comm), partition_(std::move(partition)), placement_(placement), local_(local) {
  require(partition_.num_ranks() == comm.size(), "DistributedArray: a partition for another number of ranks");
  const std::int64_t extent = placement == Placement::sharded ? partition_.size(comm.rank()) : partition_.extent();
  require(static_cast<std::int64_t>(local.extent(0)) == extent, "DistributedArray: " + std::to_string(local.extent(0)) +
                                                                    " local elements where the placement has " +
                                                                    std::to_string(extent));
}

template <class T>
Vector<T> DistributedArray<T>::my_slice() const {
  if (placement_ == Placement::sharded) return local_;
  return slice(local_, partition_.begin(comm_->rank()), partition_.size(comm_->rank()));
}

template <class T>
void redistribute(const DistributedArray<T>& source, DistributedArray<T>& destination) {
  require_alike(source, destination);
  const auto from = source.placement();
  const auto to = destination.placement();
  require(to != Placement::partial, "redistribute: nothing becomes Partial");
  if (from == Placement::partial) {
    complete(source.comm(), start_reduce(source, destination.my_slice()));
    if (to == Placement::replicated) complete(source.comm(), start_gather(destination.my_slice(), destination));
  } else if (from == Placement::sharded && to == Placement::replicated) {
    complete(source.comm(), start_gather(source.my_slice(), destination));
  } else if (to == Placement::sharded) {
    copy(source.my_slice(), destination.local());
  } else {
    copy(source.local(), destination.local());
  }
}

template <class T>
Pending start_redistribute(const DistributedArray<T>& source, DistributedArray<T>& destination) {
  require_alike(source, destination);
  const bool reduces = source.placement() == Placement::partial && destination.placement() == Placement::sharded;
  const bool gathers = source.placement() == Placement::sharded && destination.placement() == Placement::replicated;
  require(reduces || gathers, "start_redistribute: these placements are not one collective apart");
  return reduces ? start_reduce(source, destination.my_slice()) : start_gather(source.my_slice(), destination);
}

#define KOZERO_INSTANTIATE(T)                                                   \
  template class DistributedArray<T>;                                           \
  template void redistribute(const DistributedArray<T>&, DistributedArray<T>&); \
  template Pending start_redistribute(const DistributedArray<T>&, DistributedArray<T>&);
KOZERO_FOR_STORED_TYPES(KOZERO_INSTANTIATE)

}  // namespace kozero::dist
