// SPDX-FileCopyrightText: The KoZeRO authors
// SPDX-License-Identifier: Apache-2.0
// distributed_array.cpp: where the units of an array lie, and the collective of each pair of placements.
#include <type_traits>
#include <utility>

#include <kozero/core/error.hpp>
#include <kozero/core/precision.hpp>
#include <kozero/core/timing.hpp>
#include <kozero/dist/distributed_array.hpp>

namespace kozero::dist {
namespace {

/// The memory of each whole unit: units one after another in one array.
template <class T>
std::vector<Vector<T>> units_in(const Vector<T>& flat, const ParameterTable& table) {
  std::vector<Vector<T>> units;
  for (const auto& unit : table.units()) units.push_back(slice(flat, unit.offset, unit.extent));
  return units;
}

template <class T>
Vector<T> take(const Storage& storage, const std::string& label, std::int64_t extent, MemoryLedger& ledger) {
  return storage.source != nullptr ? ledger.take<T>(storage.category, label, extent, *storage.source)
                                   : ledger.take<T>(storage.category, label, extent);
}

template <class T>
void copy(const Vector<T>& from, const Vector<T>& to) {
  if (from.data() != to.data() && from.extent(0) > 0) Kokkos::deep_copy(Device(), to, from);
}

/// to += from
void add(const Vector<float>& from, const Vector<float>& to) {
  require(from.extent(0) == to.extent(0), "redistribute: the shards differ in extent");
  const auto extent = static_cast<std::int64_t>(to.extent(0));
  Kokkos::parallel_for(
      "kozero::redistribute::accumulate", Kokkos::RangePolicy<Device, Kokkos::IndexType<std::int64_t>>(0, extent),
      KOKKOS_LAMBDA(std::int64_t i) { to(i) += from(i); });
}

template <class T>
Pending start_reduce(Communicator& comm, const Vector<T>& full, const Vector<T>& shard, const Partition& partition,
                     Fold fold) {
  if constexpr (std::is_same_v<T, float>) {
    return comm.start_reduce_scatter(full.data(), shard.data(), partition, fold);
  } else {
    throw Error(Failure::internal, "redistribute: partial sums are stored and added in float");
  }
}

template <class T>
Pending start_gather(Communicator& comm, const Vector<T>& shard, const Vector<T>& full, const Partition& partition) {
  return comm.start_all_gather(shard.data(), full.data(), partition, sizeof(T));
}

}  // namespace

template <class T>
DistributedArray<T>::DistributedArray(const ParameterTable& table, Communicator& comm, Placement placement,
                                      const Storage& storage, MemoryLedger& ledger)
    : comm_(&comm), placement_(placement), layout_(table, comm.size(), comm.rank()) {
  const auto memory = [&](const std::string& label, std::int64_t extent) {
    return take<T>(storage, label, extent, ledger);
  };
  if (placement == Placement::sharded) {
    const Vector<T> flat = memory(storage.label, layout_.extent());
    for (const auto& shard : layout_.shards()) shards_.push_back(slice(flat, shard.first, shard.extent));
    return;
  }
  if (storage.ahead) {
    const SlotBuffers slots(table, *storage.ahead);
    std::vector<Vector<T>> buffers;
    for (const auto& [name, extent] : slots.buffers()) buffers.push_back(memory(storage.label + ", " + name, extent));
    num_buffers_ = buffers.size();
    for (int unit = 0; unit < table.num_units(); ++unit) {
      buffer_of_.push_back(slots.of(unit));
      full_.push_back(slice(buffers[slots.of(unit)], 0, table.unit(unit).extent));
    }
  } else {
    full_ = units_in(memory(storage.label, table.extent()), table);
    num_buffers_ = full_.size();
    for (std::size_t unit = 0; unit < full_.size(); ++unit) buffer_of_.push_back(unit);
  }
  for (const auto& shard : layout_.shards()) {
    shards_.push_back(slice(full_[static_cast<std::size_t>(shard.unit)], shard.begin, shard.extent));
  }
}

template <class T>
DistributedArray<T> DistributedArray<T>::viewed_as(Placement placement) const {
  require(placement == Placement::sharded || placement_ != Placement::sharded,
          "DistributedArray: shards cannot be viewed as whole units");
  DistributedArray view = *this;
  view.placement_ = placement;
  if (placement == Placement::sharded) view.full_.clear();
  return view;
}

template <class T>
Vector<T> DistributedArray<T>::full(int unit) const {
  require(placement_ != Placement::sharded, "DistributedArray: a sharded array has no whole units");
  return full_.at(static_cast<std::size_t>(unit));
}

template <class T>
Vector<T> DistributedArray<T>::local(int unit) const {
  return placement_ == Placement::sharded ? shard(unit) : full(unit);
}

template <class T>
void Transfer<T>::wait() {
  if (state_ != State::started) return;
  comm_->wait(pending_);
  state_ = State::arrived;
  if constexpr (std::is_same_v<T, float>) {
    if (then_ == Then::add) add(from_, to_);
  }
  if (then_ == Then::gather) {
    comm_->wait_until_reusable(pending_);
    pending_ = start_gather(*comm_, from_, to_, *partition_);
    comm_->wait(pending_);
  }
}

template <class T>
void Transfer<T>::wait_until_reusable() {
  wait();
  if (state_ == State::arrived) comm_->wait_until_reusable(pending_);
  state_ = State::reusable;
}

template <class T>
Transfer<T> redistribute(const DistributedArray<T>& source, const DistributedArray<T>& destination, int unit,
                         Fold fold) {
  using Then = typename Transfer<T>::Then;
  const Placement from = source.placement();
  const Placement to = destination.placement();
  const Partition& partition = source.layout().partition(unit);
  require(&source.comm() == &destination.comm() &&
              partition.extent() == destination.layout().partition(unit).extent(),
          "redistribute: the arrays have different communicators or extents");
  require(to != Placement::partial, "redistribute: nothing becomes Partial");
  require(!fold.onto || (from == Placement::partial && to == Placement::sharded &&
                         source.shard(unit).data() != destination.shard(unit).data()),
          "redistribute: only addends are added up, onto shards that lie apart from them");
  Transfer<T> transfer;
  if (from != Placement::partial && (to == Placement::sharded || from == to)) {
    copy(to == Placement::sharded ? source.shard(unit) : source.full(unit), destination.local(unit));
    return transfer;
  }
  position().unit.store(unit, std::memory_order_relaxed);
  Communicator& comm = source.comm();
  transfer.comm_ = &comm;
  transfer.partition_ = &partition;
  transfer.state_ = Transfer<T>::State::started;
  if (from == Placement::sharded) {
    transfer.pending_ = start_gather(comm, source.shard(unit), destination.full(unit), partition);
    return transfer;
  }
  const bool adds_later = fold.onto && !comm.adds_in_order();
  const Vector<T> sum = adds_later ? source.shard(unit) : destination.shard(unit);
  transfer.pending_ = start_reduce(comm, source.full(unit), sum, partition, comm.adds_in_order() ? fold : Fold());
  transfer.from_ = sum;
  transfer.to_ = to == Placement::sharded ? destination.shard(unit) : destination.full(unit);
  if (adds_later) transfer.then_ = Then::add;
  if (to == Placement::replicated) transfer.then_ = Then::gather;
  return transfer;
}

#define KOZERO_INSTANTIATE(T)         \
  template class DistributedArray<T>; \
  template class Transfer<T>;         \
  template Transfer<T> redistribute(const DistributedArray<T>&, const DistributedArray<T>&, int, Fold);
KOZERO_FOR_STORED_TYPES(KOZERO_INSTANTIATE)

}  // namespace kozero::dist
