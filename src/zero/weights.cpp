// SPDX-FileCopyrightText: The KoZeRO authors
// SPDX-License-Identifier: Apache-2.0
// weights.cpp: master and stored weights, their all-gather after an update, and the check of gathered copies.
#include <algorithm>

#include <kozero/core/disk_memory.hpp>
#include <kozero/core/error.hpp>
#include <kozero/distributed/agreement.hpp>
#include <kozero/zero/weights.hpp>
#include "kernels/launch/fill.hpp"
#include "kernels/launch/reduce.hpp"

namespace kozero::zero {

using distributed::Placement;
using distributed::Storage;

namespace {

std::size_t at(int index) { return static_cast<std::size_t>(index); }

}  // namespace

void add_tensor_hashes(const ParameterTable& table, int unit, std::int64_t begin, const Vector<const float>& values,
                       std::span<std::uint64_t> hashes) {
  for (const auto& row : table.rows_of(unit)) {
    const TensorPart part = row.part_in(begin, static_cast<std::int64_t>(values.extent(0)));
    if (part.extent == 0) continue;
    const auto of_tensor = slice(values, part.begin, part.extent);
    hashes[at(row.tensor)] += kernels::bit_hash(Device(), of_tensor, part.first);
    release_pages(of_tensor);
  }
}

std::vector<std::uint64_t> tensor_hashes(const ParameterTable& table,
                                         const distributed::DistributedArray<float>& master) {
  std::vector<std::uint64_t> mine(table.tensors().size());
  for (const UnitRange& shard : master.layout().shards()) {
    add_tensor_hashes(table, shard.unit, shard.begin, master.shard(shard.unit), mine);
  }
  std::vector<std::uint64_t> hashes = master.comm().sum_control(mine);
  if (master.mesh().num_groups() == 1) return hashes;
  const std::vector<std::uint64_t> of_groups = distributed::from_all_ranks(master.mesh().replicas(), hashes);
  for (std::size_t i = 0; i < of_groups.size(); ++i) {
    require(of_groups[i] == of_groups[i % hashes.size()],
            "the groups of zero.shard_group hold different values of " + table.tensors()[i % hashes.size()].name);
  }
  return hashes;
}

template <class Scalar>
Weights<Scalar>::Weights(const ParameterTable& table, const distributed::Mesh& mesh, WeightPlacements placements,
                         MemoryLedger& ledger, GatherOrder order, StateMemory memory, BaseType base)
    : table_(table),
      keeps_master_(placements.keeps_master),
      is_quantized_(table.has_adapters() && base != BaseType::as_weights),
      stored_(is_quantized_ ? table.without_base() : table, mesh, placements.stored,
              {Memory::parameters, "weights", memory.parameters != nullptr ? memory.parameters : &mesh.group()},
              ledger),
      stored_shards_(stored_.viewed_as(Placement::sharded)),
      held_(at(table.num_units()), false) {
  if constexpr (has_master<Scalar>) {
    master_.emplace(keeps_master_ ? table.without_base() : table.without_units(), mesh, placements.master,
                    Storage{Memory::optimizer, "master weights", memory.optimizer}, ledger);
  }
  if (stored_.placement() == Placement::sharded)
    gathered_.emplace(is_quantized_ ? table.without_base() : table, stored_, order, ledger);
  if (is_quantized_) quantized_.emplace(table, base, mesh, placements.stored, ledger, order, memory.parameters);
  if (memory.parameters != nullptr && memory.parameters->kind() == MemorySource::Kind::disk) {
    std::int64_t largest = 0;
    for (const UnitRange& shard : stored_.layout().shards()) largest = std::max(largest, shard.extent);
    ledger.book(Memory::staging, "pages of the shard that is gathered",
                largest * static_cast<std::int64_t>(sizeof(Scalar)));
  }
}

template <class Scalar>
Vector<const Scalar> Weights<Scalar>::acquire(int unit) {
  require(!held_[at(unit)], "unit " + table_.unit(unit).name + " is acquired twice");
  held_[at(unit)] = true;
  if (is_quantized(unit)) {
    if (unit == 0 && gathered_) gathered_->begin_pass();
    return quantized_->acquire(unit);
  }
  return gathered_ ? gathered_->acquire(unit) : stored_.full(unit);
}

template <class Scalar>
void Weights<Scalar>::release(int unit) {
  require(held_[at(unit)], "unit " + table_.unit(unit).name + " is released without acquire");
  held_[at(unit)] = false;
  if (is_quantized(unit)) return quantized_->release(unit);
  if (!owners_.empty() && wrong_copy_.empty()) check_copy(unit);
  if (gathered_) gathered_->release(unit);
}

template <class Scalar>
const distributed::DistributedArray<float>& Weights<Scalar>::master() const {
  if constexpr (has_master<Scalar>) {
    return *master_;
  } else {
    return stored_;
  }
}

template <class Scalar>
void Weights<Scalar>::round(int unit) const {
  if constexpr (has_master<Scalar>) {
    if (!is_in_master(unit)) return;
    if (master_->placement() == Placement::replicated) {
      kernels::convert(Device(), stored_.full(unit), master_->full(unit));
    } else {
      kernels::convert(Device(), stored_.shard(unit), master_->shard(unit));
    }
    release_pages(stored_.local(unit));
    release_pages(master_->local(unit));
  }
}

template <class Scalar>
void Weights<Scalar>::put(int unit, std::int64_t begin, const HostVector<const float>& values) const {
  if (is_quantized(unit)) return quantized_->put(unit, begin, values);
  const auto copy = [&](const auto& whole) {
    const std::int64_t first = begin - stored_.layout().shard(unit).begin;
    const auto shard = slice(whole, first, static_cast<std::int64_t>(values.extent(0)));
    const auto on_host = Kokkos::create_mirror_view(Kokkos::HostSpace(), shard);
    using Value = typename std::decay_t<decltype(on_host)>::value_type;
    const Vector<Value, Kokkos::HostSpace> to(on_host.data(), on_host.extent(0));
    Kokkos::parallel_for("kozero::zero::put", Kokkos::RangePolicy<Host>(Host(), 0, values.extent(0)),
                         [=](const std::size_t i) { to(i) = static_cast<Value>(values(i)); });
    Host().fence("kozero::zero::put");
    Kokkos::deep_copy(shard, on_host);
    release_pages(shard);
  };
  is_in_master(unit) ? copy(master().shard(unit)) : copy(stored_.shard(unit));
}

template <class Scalar>
UnitRange Weights<Scalar>::range_to_put(int unit) const {
  return is_quantized(unit) ? quantized_->range_to_put(unit) : stored_.layout().shard(unit);
}

template <class Scalar>
void Weights<Scalar>::wait_until_reusable() {
  if (gathered_) gathered_->wait_until_reusable();
}

template <class Scalar>
void Weights<Scalar>::publish() {
  const bool gathers_master = has_master<Scalar> && keeps_master_ && master().placement() == Placement::replicated;
  std::vector<int> gathered;  // as master weights, whose values every rank rounds for itself
  std::vector<int> shared;
  for (int unit = 0; unit < table_.num_units(); ++unit) {
    if (!is_quantized(unit)) (gathers_master && is_in_master(unit) ? gathered : shared).push_back(unit);
  }
  if (gathers_master) redistribute_units(master().viewed_as(Placement::sharded), master(), gathered);
  for (int unit = 0; unit < table_.num_units(); ++unit) round(unit);
  if (!shared.empty()) share(shared);
  if (quantized_) quantized_->publish();
}

template <class Scalar>
void Weights<Scalar>::share(const std::vector<int>& units) {
  if (gathered_) return gathered_->drop();
  redistribute_units(stored_shards_, stored_, units);
}

template <class Scalar>
std::vector<RestingArray> Weights<Scalar>::at_rest() const {
  const auto replicated = [](const auto& array) { return array.placement() == Placement::replicated; };
  std::vector<RestingArray> arrays;
  for (int unit = 0; unit < table_.num_units(); ++unit) {
    arrays.push_back({kWeightsName, unit, words_of(stored_.local(unit)), replicated(stored_)});
    if (is_quantized(unit)) {
      arrays.push_back({"quantized weights", unit, words_of(quantized_->words(unit)), quantized_->is_replicated()});
    }
    if (master_ && is_in_master(unit))
      arrays.push_back({"master weights", unit, words_of(master_->local(unit)), replicated(*master_)});
  }
  return arrays;
}

template <class Scalar>
void Weights<Scalar>::watch_copies(std::vector<std::uint64_t> owners) {
  if (gathered_) owners_ = std::move(owners);
  wrong_copy_.clear();
}

template <class Scalar>
void Weights<Scalar>::check_copy(int unit) {
  const Partition& partition = stored_.layout().partition(unit);
  const Vector<const Scalar> copy = gathered_->held(unit);
  for (int rank = 0; rank < partition.num_ranks(); ++rank) {
    const std::uint64_t hash = kernels::bit_hash(Device(), slice(copy, partition.begin(rank), partition.size(rank)));
    if (hash != owners_[at(unit * partition.num_ranks() + rank)]) wrong_copy_ = table_.unit(unit).name;
  }
}

#define KOZERO_INSTANTIATE(T) template class Weights<T>;
KOZERO_FOR_STORED_TYPES(KOZERO_INSTANTIATE)

}  // namespace kozero::zero
