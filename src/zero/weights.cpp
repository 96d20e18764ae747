// SPDX-FileCopyrightText: The KoZeRO authors
// SPDX-License-Identifier: Apache-2.0
#include <type_traits>

#include <kozero/core/error.hpp>
#include <kozero/core/timing.hpp>
#include <kozero/zero/weights.hpp>
#include "kernels/launch/fill.hpp"
#include "kernels/launch/reduce.hpp"

namespace kozero::zero {

using dist::DistributedArray;
using dist::Placement;

namespace {

std::size_t at(int index) { return static_cast<std::size_t>(index); }

}  // namespace

Weights::Weights(const ParameterTable& table, dist::Communicator& comm) : table_(table), comm_(comm) {
  std::int64_t slices = 0;
  for (const auto& unit : table.units()) {
    partitions_.emplace_back(unit.extent, comm.size());
    first_.push_back(slices);
    slices += partitions_.back().size(comm.rank());
  }
}

std::vector<UnitRange> Weights::my_ranges() const {
  std::vector<UnitRange> ranges;
  for (int unit = 0; unit < table_.num_units(); ++unit) {
    const Partition& cut = partition(unit);
    ranges.push_back(UnitRange{unit, cut.begin(comm_.rank()), cut.size(comm_.rank()), first_[at(unit)]});
  }
  return ranges;
}

double Weights::hash_of_my_slices() const {
  constexpr int kFolded = 12;
  std::uint64_t hash = 0;
  for (const auto& range : my_ranges()) {
    const Vector<const float> mine = my_slice(range.unit);
    hash = kernels::BitHash<float>::mixed(hash) + kernels::bit_hash(Device(), mine);
  }
  return static_cast<double>(hash >> kFolded);
}

std::int64_t Weights::extent(Placement placement) const {
  if (placement != Placement::sharded) return table_.extent();
  return partitions_.empty() ? 0 : first_.back() + partitions_.back().size(comm_.rank());
}

template <class T>
Vector<T> Weights::slice_in(const Vector<T>& flat, Placement placement, int unit) const {
  const Partition& cut = partition(unit);
  const bool sharded = placement == Placement::sharded;
  const std::int64_t first = sharded ? first_[at(unit)] : table_.unit(unit).offset + cut.begin(comm_.rank());
  return slice(flat, first, cut.size(comm_.rank()));
}

template <class T>
Vector<T> Weights::unit_in(const Vector<T>& flat, int unit) const {
  return slice(flat, table_.unit(unit).offset, table_.unit(unit).extent);
}

template <class T>
dist::Pending Weights::start_gather(int unit, const Vector<T>& slice, const Vector<T>& whole) const {
  position().unit.store(unit, std::memory_order_relaxed);
  const DistributedArray<T> shard(comm_, partition(unit), Placement::sharded, slice);
  DistributedArray<T> replicated(comm_, partition(unit), Placement::replicated, whole);
  return start_redistribute(shard, replicated);
}

template <class T>
void Weights::gather(int unit, const Vector<T>& slice, const Vector<T>& whole) const {
  const dist::Pending pending = start_gather(unit, slice, whole);
  comm_.finish(pending);
  comm_.reclaim(pending);
}

template <class Scalar>
WeightsOf<Scalar>::WeightsOf(const ParameterTable& table, dist::Communicator& comm, WeightPlacements placements,
                             MemoryLedger& ledger, int prefetch_units)
    : Weights(table, comm), placements_(placements), held_(at(table.num_units()), false) {
  flat_ = ledger.take<Scalar>(Memory::parameters, "weights", extent(placements_.stored), comm);
  if constexpr (has_master<Scalar>) {
    master_ = ledger.take<float>(Memory::optimizer, "master weights", extent(placements_.master));
  } else {
    placements_.master = placements_.stored;
    master_ = flat_;
  }
  if (!sharded()) return;
  gathered_.emplace(table, comm, prefetch_units, ledger, [this](int unit, const Vector<Scalar>& whole) {
    return this->start_gather(unit, this->slice_in(flat_, placements_.stored, unit), whole);
  });
}

template <class Scalar>
Vector<const Scalar> WeightsOf<Scalar>::acquire(int unit) {
  require(!held_[at(unit)], "unit " + table().unit(unit).name + " is acquired twice");
  const Vector<const Scalar> all = gathered_ ? gathered_->acquire(unit) : unit_in(flat_, unit);
  held_[at(unit)] = true;
  return all;
}

template <class Scalar>
void WeightsOf<Scalar>::release(int unit) {
  require(held_[at(unit)], "unit " + table().unit(unit).name + " is released without acquire");
  if (!owners_.empty() && wrong_copy_.empty()) check_copy(unit);
  held_[at(unit)] = false;
  if (gathered_) gathered_->release(unit);
}

template <class Scalar>
Vector<float> WeightsOf<Scalar>::my_slice(int unit) const {
  return slice_in(master_, placements_.master, unit);
}

template <class Scalar>
Vector<float> WeightsOf<Scalar>::whole(int unit) const {
  require(whole_master(), "sharded weights have no whole units at rest");
  return unit_in(master_, unit);
}

template <class Scalar>
void WeightsOf<Scalar>::round(int unit) const {
  if constexpr (has_master<Scalar>) {
    if (whole_master()) {
      kernels::convert(Device(), unit_in(flat_, unit), unit_in(master_, unit));
    } else {
      kernels::convert(Device(), slice_in(flat_, placements_.stored, unit), my_slice(unit));
    }
  }
}

template <class Scalar>
StoredVector WeightsOf<Scalar>::my_stored_slice(int unit) const {
  return slice_in(flat_, placements_.stored, unit);
}

template <class Scalar>
StoredVector WeightsOf<Scalar>::whole_stored(int unit) const {
  return unit_in(flat_, unit);
}

template <class Scalar>
void WeightsOf<Scalar>::settle() {
  if (gathered_) gathered_->settle();
}

template <class Scalar>
void WeightsOf<Scalar>::publish() {
  if constexpr (has_master<Scalar>) {
    for (int unit = 0; unit < table().num_units(); ++unit) {
      if (whole_master()) gather(unit, my_slice(unit), whole(unit));
      round(unit);
    }
  }
  if (!has_master<Scalar> || !whole_master()) share();
}

template <class Scalar>
void WeightsOf<Scalar>::share() {
  if (gathered_) return gathered_->forget();
  std::vector<dist::Pending> started;
  for (int unit = 0; unit < table().num_units(); ++unit) {
    started.push_back(start_gather(unit, slice_in(flat_, placements_.stored, unit), unit_in(flat_, unit)));
    if (unit > 0) comm().finish(started[at(unit) - 1]);
  }
  if (!started.empty()) comm().finish(started.back());
  for (const auto& pending : started) comm().reclaim(pending);
}

template <class Scalar>
std::vector<RestingArray> WeightsOf<Scalar>::at_rest() const {
  std::vector<RestingArray> arrays;
  for (int unit = 0; unit < table().num_units(); ++unit) {
    arrays.push_back({kWeightsName, unit, sharded() ? my_stored_slice(unit) : whole_stored(unit), !sharded()});
    if constexpr (has_master<Scalar>) {
      arrays.push_back({"master weights", unit, whole_master() ? whole(unit) : my_slice(unit), whole_master()});
    }
  }
  return arrays;
}

template <class Scalar>
void WeightsOf<Scalar>::watch_copies(std::vector<std::uint64_t> owners) {
  if (gathered_) owners_ = std::move(owners);
  wrong_copy_.clear();
}

template <class Scalar>
void WeightsOf<Scalar>::check_copy(int unit) {
  const Partition& cut = partition(unit);
  const Vector<const Scalar> copy = gathered_->held(unit);
  for (int rank = 0; rank < comm().size(); ++rank) {
    const std::uint64_t hash = kernels::bit_hash(Device(), slice(copy, cut.begin(rank), cut.size(rank)));
    if (hash != owners_[at(unit * comm().size() + rank)]) wrong_copy_ = table().unit(unit).name;
  }
}

#define KOZERO_INSTANTIATE(T) template class WeightsOf<T>;
KOZERO_FOR_STORED_TYPES(KOZERO_INSTANTIATE)

}  // namespace kozero::zero
