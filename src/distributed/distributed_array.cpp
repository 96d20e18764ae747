// SPDX-FileCopyrightText: The KoZeRO authors
// SPDX-License-Identifier: Apache-2.0
// distributed_array.cpp: the memory of an array's units, and the collectives between each pair of placements.
#include <numeric>
#include <type_traits>
#include <utility>

#include <kozero/core/error.hpp>
#include <kozero/core/events.hpp>
#include <kozero/core/precision.hpp>
#include <kozero/distributed/distributed_array.hpp>

namespace kozero::distributed {
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

bool is_of_shards(Placement placement) {
  return placement == Placement::sharded || placement == Placement::in_last_group;
}

}  // namespace

Mesh::Mesh(Communicator& all, Communicator& group, Communicator& replicas)
    : all_(&all), group_(&group), replicas_(&replicas) {
  require(all.size() == group.size() * replicas.size() && all.rank() == replicas.rank() * group.size() + group.rank() &&
              replicas.size() > 1,
          "Mesh: a group and its replicas that are not the axes of all ranks");
}

Communicator& Mesh::replicas() const {
  require(replicas_ != nullptr, "Mesh: one group has no replicas");
  return *replicas_;
}

template <class T>
DistributedArray<T>::DistributedArray(const ParameterTable& table, const Mesh& mesh, Placement placement,
                                      const Storage& storage, MemoryLedger& ledger)
    : mesh_(mesh), placement_(placement), layout_(table, mesh.group().size(), mesh.group().rank()) {
  const auto memory = [&](const std::string& label, std::int64_t extent) {
    return take<T>(storage, label, extent, ledger);
  };
  if (is_of_shards(placement)) {
    const Vector<T> flat = memory(storage.label, layout_.extent());
    for (const auto& shard : layout_.shards()) shards_.push_back(slice(flat, shard.first, shard.extent));
    return;
  }
  if (storage.ahead) {
    const SlotBuffers slots(table, *storage.ahead, storage.held);
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
  require(is_of_shards(placement) || !is_of_shards(placement_),
          "DistributedArray: shards cannot be viewed as whole units");
  DistributedArray view = *this;
  view.placement_ = placement;
  if (is_of_shards(placement)) view.full_.clear();
  return view;
}

template <class T>
Vector<T> DistributedArray<T>::full(int unit) const {
  require(!is_of_shards(placement_), "DistributedArray: a sharded array has no whole units");
  return full_.at(static_cast<std::size_t>(unit));
}

template <class T>
Vector<T> DistributedArray<T>::local(int unit) const {
  return is_of_shards(placement_) ? shard(unit) : full(unit);
}

template <class T>
void Transfer<T>::start_next() {
  if (at_ == Placement::sharded) {
    comm_ = &mesh_->group();
    pending_ = comm_->start_all_gather(from_.data(), full_.data(), partition_, sizeof(T));
    at_ = Placement::replicated;
    return;
  }
  comm_ = &mesh_->replicas();
  const Partition of_last(static_cast<std::int64_t>(shard_.extent(0)), comm_->size(), 1);
  pending_ = comm_->start_all_gather(from_.data(), shard_.data(), of_last, sizeof(T));
  from_ = shard_;
  at_ = Placement::sharded;
}

template <class T>
void Transfer<T>::wait() {
  if (state_ != State::started) return;
  comm_->wait(pending_);
  if constexpr (std::is_same_v<T, float>) {
    if (addend_.extent(0) > 0) add(addend_, shard_);
  }
  while (at_ != goal_) {
    comm_->wait_until_reusable(pending_);
    start_next();
    comm_->wait(pending_);
  }
  state_ = State::arrived;
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
  const Mesh& mesh = source.mesh();
  const auto of_mesh = [&](Placement placement) {
    return placement == Placement::in_last_group && mesh.num_groups() == 1 ? Placement::sharded : placement;
  };
  const Placement from = of_mesh(source.placement());
  const Placement to = of_mesh(destination.placement());
  const Partition& partition = source.layout().partition(unit);
  require(mesh == destination.mesh() && partition.extent() == destination.layout().partition(unit).extent(),
          "redistribute: the arrays have different meshes or extents");
  require(to != Placement::partial && (to != Placement::in_last_group || from == Placement::partial || from == to),
          "redistribute: nothing becomes Partial, and what all groups have is not in the last one");
  require(!fold.onto || (from == Placement::partial && is_of_shards(to) &&
                         source.shard(unit).data() != destination.shard(unit).data()),
          "redistribute: only addends are added up, onto shards that lie apart from them");
  Transfer<T> transfer;
  if (from == to || (from == Placement::replicated && to == Placement::sharded)) {
    copy(is_of_shards(to) ? source.shard(unit) : source.full(unit), destination.local(unit));
    return transfer;
  }
  position().unit.store(unit, std::memory_order_relaxed);
  transfer.mesh_ = &mesh;
  transfer.partition_ = partition;
  transfer.state_ = Transfer<T>::State::started;
  transfer.goal_ = to;
  transfer.shard_ = destination.shard(unit);
  if (!is_of_shards(to)) transfer.full_ = destination.full(unit);
  if (from != Placement::partial) {
    transfer.at_ = from;
    transfer.from_ = source.shard(unit);
    transfer.start_next();
    return transfer;
  }
  Communicator& comm = mesh.all();
  const bool adds_later = fold.onto && !comm.adds_in_order() && mesh.is_last_group();
  Vector<T> sum = adds_later ? source.shard(unit) : destination.shard(unit);
  if (!mesh.is_last_group()) sum = slice(source.full(unit), 0, 0);  // this rank receives no part of the sum
  const Partition of_last_group(partition.extent(), comm.size(), mesh.group().size());
  transfer.comm_ = &comm;
  transfer.pending_ = start_reduce(comm, source.full(unit), sum, of_last_group, comm.adds_in_order() ? fold : Fold());
  transfer.at_ = of_mesh(Placement::in_last_group);
  transfer.from_ = destination.shard(unit);
  if (adds_later) transfer.addend_ = sum;
  return transfer;
}

template <class T>
void redistribute(const DistributedArray<T>& source, const DistributedArray<T>& destination) {
  std::vector<int> units(static_cast<std::size_t>(source.num_units()));
  std::iota(units.begin(), units.end(), 0);
  redistribute_units(source, destination, units);
}

template <class T>
void redistribute_units(const DistributedArray<T>& source, const DistributedArray<T>& destination,
                        const std::vector<int>& units) {
  std::vector<Transfer<T>> started;
  for (const int unit : units) {
    started.push_back(redistribute(source, destination, unit));
    if (started.size() > 1) started[started.size() - 2].wait();
  }
  if (!started.empty()) started.back().wait();
  for (auto& transfer : started) transfer.wait_until_reusable();
}

#define KOZERO_INSTANTIATE(T)                                                                           \
  template class DistributedArray<T>;                                                                   \
  template class Transfer<T>;                                                                           \
  template Transfer<T> redistribute(const DistributedArray<T>&, const DistributedArray<T>&, int, Fold); \
  template void redistribute(const DistributedArray<T>&, const DistributedArray<T>&);                   \
  template void redistribute_units(const DistributedArray<T>&, const DistributedArray<T>&, const std::vector<int>&);
KOZERO_FOR_STORED_TYPES(KOZERO_INSTANTIATE)

}  // namespace kozero::distributed
