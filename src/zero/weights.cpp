// SPDX-FileCopyrightText: The KoZeRO authors
// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <bit>

#include <kozero/core/error.hpp>
#include <kozero/zero/weights.hpp>

namespace kozero::zero {

using dist::DistributedArray;
using dist::Placement;

namespace {

std::size_t at(int index) { return static_cast<std::size_t>(index); }

/// FNV-1a over the bits of values, one part after another.
class BitHash {
 public:
  void add(const Vector<float>& values) {
    const auto host = Kokkos::create_mirror_view_and_copy(Kokkos::HostSpace(), values);
    for (std::size_t i = 0; i < host.extent(0); ++i) {
      hash_ = (hash_ ^ std::bit_cast<std::uint32_t>(host(i))) * 0x100000001B3ULL;
    }
  }
  /// Folded to 52 bits, which a double carries exactly.
  [[nodiscard]] double folded() const { return static_cast<double>(hash_ >> 12U); }

 private:
  std::uint64_t hash_ = 0xCBF29CE484222325ULL;
};

}  // namespace

Weights::Weights(const ParameterTable& table, dist::Communicator& comm, Placement placement, MemoryLedger& ledger)
    : table_(table), comm_(comm), placement_(placement), held_(at(table.num_units()), false) {
  std::int64_t slices = 0;
  for (const auto& unit : table.units()) {
    partitions_.emplace_back(unit.extent, comm.size());
    first_.push_back(slices);
    slices += partitions_.back().size(comm.rank());
  }
  flat_ = ledger.take<float>(Memory::parameters, "weights", sharded() ? slices : table.extent());
  if (!sharded()) return;
  for (int slot = 0; slot < table.num_slots(); ++slot) {
    slots_.push_back(ledger.take<float>(Memory::gathered, "gathered weights, slot " + std::to_string(slot),
                                        table.slot_extent(slot)));
  }
  in_slot_.assign(slots_.size(), -1);
}

Vector<const float> Weights::acquire(int unit) {
  require(!held_[at(unit)], "unit " + table_.unit(unit).name + " is acquired twice");
  held_[at(unit)] = true;
  if (!sharded()) return whole(unit);
  const int slot = table_.unit(unit).slot;
  int& resident = in_slot_[at(slot)];
  const Vector<float> gathered = slice(slots_[at(slot)], 0, table_.unit(unit).extent);
  if (resident != unit) {
    require(resident < 0 || !held_[at(resident)], "unit " + table_.unit(unit).name + " needs the slot that " +
                                                      table_.unit(std::max(resident, 0)).name + " holds");
    gather_into(unit, gathered);
    resident = unit;
  }
  return gathered;
}

void Weights::release(int unit) {
  require(held_[at(unit)], "unit " + table_.unit(unit).name + " is released without acquire");
  held_[at(unit)] = false;
}

Vector<float> Weights::whole(int unit) const {
  require(!sharded(), "sharded weights have no whole units at rest");
  return slice(flat_, table_.unit(unit).offset, table_.unit(unit).extent);
}

Vector<float> Weights::my_slice(int unit) const {
  const Partition& cut = partition(unit);
  const std::int64_t first = sharded() ? first_[at(unit)] : table_.unit(unit).offset + cut.begin(comm_.rank());
  return slice(flat_, first, cut.size(comm_.rank()));
}

std::vector<UnitRange> Weights::my_ranges() const {
  std::vector<UnitRange> ranges;
  for (int unit = 0; unit < table_.num_units(); ++unit) {
    const Partition& cut = partition(unit);
    ranges.push_back(UnitRange{unit, cut.begin(comm_.rank()), cut.size(comm_.rank()), first_[at(unit)]});
  }
  return ranges;
}

DistributedArray<float> Weights::shard(int unit) const {
  return {comm_, partition(unit), Placement::sharded, my_slice(unit)};
}

void Weights::gather_into(int unit, const Vector<float>& whole) const {
  DistributedArray<float> replicated(comm_, partition(unit), Placement::replicated, whole);
  redistribute(shard(unit), replicated);
}

void Weights::publish() {
  forget_gathered();
  if (sharded()) return;
  for (int unit = 0; unit < table_.num_units(); ++unit) gather_into(unit, whole(unit));
}

std::string Weights::first_unequal_replica() const {
  for (int unit = 0; !sharded() && unit < table_.num_units(); ++unit) {
    BitHash mine;
    mine.add(whole(unit));
    const auto hashes = comm_.gather_control({mine.folded()});
    if (std::any_of(hashes.begin(), hashes.end(), [&](double hash) { return hash != hashes.front(); })) {
      return table_.unit(unit).name;
    }
  }
  return "";
}

double Weights::hash_of_my_slices() const {
  BitHash hash;
  for (const auto& range : my_ranges()) hash.add(my_slice(range.unit));
  return hash.folded();
}

void Weights::forget_gathered() { std::fill(in_slot_.begin(), in_slot_.end(), -1); }

}  // namespace kozero::zero
