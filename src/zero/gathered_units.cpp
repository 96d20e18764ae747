// SPDX-FileCopyrightText: The KoZeRO authors
// SPDX-License-Identifier: Apache-2.0
// gathered_units.cpp: the memory of the slots, the order of units, and gathers ahead of use.
#include <algorithm>
#include <utility>

#include <kozero/core/error.hpp>
#include <kozero/core/precision.hpp>
#include <kozero/zero/gathered_units.hpp>

namespace kozero::zero {
namespace {

/// The units of a slot, in order.
std::vector<int> units_in(const ParameterTable& table, int slot) {
  std::vector<int> units;
  for (int unit = 0; unit < table.num_units(); ++unit) {
    if (table.unit(unit).slot == slot) units.push_back(unit);
  }
  return units;
}

bool follow_one_another(const std::vector<int>& units) {
  const auto pair = std::adjacent_find(units.begin(), units.end(), [](int a, int b) { return b == a + 1; });
  return pair != units.end();
}

}  // namespace

SlotBuffers::SlotBuffers(const ParameterTable& table, int ahead)
    : of_unit_(static_cast<std::size_t>(table.num_units())) {
  for (int slot = 0; slot < table.num_slots(); ++slot) {
    const auto units = units_in(table, slot);
    const std::size_t wanted = follow_one_another(units) ? static_cast<std::size_t>(1 + ahead) : 1;
    const std::size_t count = std::min(wanted, units.size());
    for (std::size_t i = 0; i < units.size(); ++i) {
      of_unit_[static_cast<std::size_t>(units[i])] = buffers_.size() + i % count;
    }
    for (std::size_t i = 0; i < count; ++i) {
      const std::string name = "slot " + std::to_string(slot);
      buffers_.push_back({count == 1 ? name : name + ", buffer " + std::to_string(i + 1), table.slot_extent(slot)});
    }
  }
}

UnitOrder::UnitOrder(int num_units) {
  for (int unit = 0; unit < num_units; ++unit) order_.push_back(unit);
  for (int unit = num_units - 2; unit > 0; --unit) order_.push_back(unit);
}

void UnitOrder::reach(int unit) {
  const auto begin = order_.begin();
  const auto next = begin + static_cast<std::ptrdiff_t>(place_);
  auto found = std::find(next, order_.end(), unit);
  if (found == order_.end() || unit == 0) found = std::find(begin, order_.end(), unit);
  place_ = static_cast<std::size_t>(found - begin);
}

int UnitOrder::ahead(int steps) const {
  const std::size_t place = place_ + static_cast<std::size_t>(steps);
  return place < order_.size() ? order_[place] : -1;
}

template <class Scalar>
GatheredUnits<Scalar>::GatheredUnits(const ParameterTable& table, dist::Communicator& comm, int ahead,
                                     MemoryLedger& ledger, Start start)
    : table_(table),
      comm_(comm),
      ahead_(ahead),
      start_(std::move(start)),
      places_(table, ahead),
      order_(table.num_units()) {
  for (const auto& [name, extent] : places_.buffers()) {
    buffers_.push_back({.memory = ledger.take<Scalar>(Memory::gathered, "gathered weights, " + name, extent)});
  }
}

template <class Scalar>
Vector<const Scalar> GatheredUnits<Scalar>::acquire(int unit) {
  if (num_held_ == 0) order_.reach(unit);  // beside another one it is a companion: the tied embedding of the head
  if (buffer(unit).unit != unit) start(unit);
  finish(buffer(unit));
  buffer(unit).held = true;
  ++num_held_;
  for (int steps = 1; steps <= ahead_; ++steps) {
    const int next = order_.ahead(steps);
    if (next >= 0 && buffer(next).unit != next && !buffer(next).held) start(next);
  }
  return whole(unit);
}

template <class Scalar>
void GatheredUnits<Scalar>::release(int unit) {
  buffer(unit).held = false;
  --num_held_;
}

template <class Scalar>
void GatheredUnits<Scalar>::start(int unit) {
  Buffer& mine = buffer(unit);
  require(!mine.held, "unit " + table_.unit(unit).name + " needs the slot that " +
                          table_.unit(std::max(mine.unit, 0)).name + " holds");
  finish(mine);
  mine.unit = unit;
  mine.pending = start_(unit, whole(unit));
  mine.under_way = true;
  mine.read = false;
}

template <class Scalar>
void GatheredUnits<Scalar>::finish(Buffer& buffer) {
  if (buffer.under_way) comm_.finish(buffer.pending);
  buffer.under_way = false;
}

template <class Scalar>
void GatheredUnits<Scalar>::settle() {
  for (auto& buffer : buffers_) {
    finish(buffer);
    if (!buffer.read) comm_.reclaim(buffer.pending);  // its earlier ones were read before it
    buffer.read = true;
  }
}

template <class Scalar>
void GatheredUnits<Scalar>::forget() {
  settle();
  for (auto& buffer : buffers_) buffer.unit = -1;
}

#define KOZERO_INSTANTIATE(T) template class GatheredUnits<T>;
KOZERO_FOR_STORED_TYPES(KOZERO_INSTANTIATE)

}  // namespace kozero::zero
