// SPDX-FileCopyrightText: The KoZeRO authors
// SPDX-License-Identifier: Apache-2.0
// parameter_table.cpp: aligned places of tensors in units, overlaps of tensors with ranges, and the buffers of slots.
#include <algorithm>
#include <functional>
#include <numeric>

#include <kozero/core/error.hpp>
#include <kozero/core/parameter_table.hpp>

namespace kozero {
namespace {

/// The units of a slot, in order.
std::vector<int> units_in(const ParameterTable& table, int slot) {
  std::vector<int> units;
  for (int unit = 0; unit < table.num_units(); ++unit) {
    if (table.unit(unit).slot == slot) units.push_back(unit);
  }
  return units;
}

std::int64_t elements_of(const std::vector<std::int64_t>& shape) {
  return std::accumulate(shape.begin(), shape.end(), std::int64_t{1}, std::multiplies<>());
}

/// The rows whose `number` is that one. They are in its order. Not by equal_range, whose result clang 14 rejects.
std::span<const Parameter> rows_with(const std::vector<Parameter>& rows, int Parameter::*number, int value) {
  return {std::ranges::lower_bound(rows, value, {}, number), std::ranges::upper_bound(rows, value, {}, number)};
}

bool are_consecutive(const std::vector<int>& units) {
  const auto pair = std::adjacent_find(units.begin(), units.end(), [](int a, int b) { return b == a + 1; });
  return pair != units.end();
}

}  // namespace

std::int64_t Tensor::extent() const { return elements_of(shape); }

std::int64_t Parameter::extent() const { return elements_of(shape); }

TensorPart Parameter::part_in(std::int64_t begin, std::int64_t extent) const {
  const std::int64_t from = std::max(begin, offset);
  const std::int64_t to = std::min(begin + extent, offset + this->extent());
  if (from >= to) return {};
  return {.begin = from - begin, .first = first + from - offset, .extent = to - from};
}

int ParameterTable::add_unit(const std::string& name, int slot, VocabularyUse vocabulary) {
  units_.push_back(Unit{name, 0, extent(), slot, vocabulary});
  return num_units() - 1;
}

int ParameterTable::append(Parameter parameter, bool align) {
  tensors_.push_back({parameter.name, parameter.shape});
  return place(std::move(parameter), align);
}

int ParameterTable::continue_tensor(Parameter parameter) {
  require(!tensors_.empty() && tensors_.back().name == parameter.name,
          "ParameterTable: the tensor added last is not " + parameter.name);
  Tensor& tensor = tensors_.back();
  parameter.first = tensor.extent();
  tensor.shape.front() += parameter.shape.front();
  return place(std::move(parameter), true);
}

int ParameterTable::place(Parameter parameter, bool align) {
  require(!units_.empty(), "ParameterTable: add before add_unit");
  parameter.tensor = static_cast<int>(tensors_.size()) - 1;
  Unit& unit = units_.back();
  const Parameter* previous = rows_.empty() || rows_.back().unit != num_units() - 1 ? nullptr : &rows_.back();
  require(align || previous != nullptr, "ParameterTable: add_joined without a tensor to join: " + parameter.name);
  const std::int64_t end = previous == nullptr ? 0 : previous->offset + previous->extent() + previous->pad;
  parameter.unit = num_units() - 1;
  parameter.offset = align ? aligned(end) : end;
  const std::int64_t extent = parameter.offset + parameter.extent() + parameter.pad;
  const std::int64_t multiple = unit_multiple(extent);
  unit.trainable = (previous != nullptr && unit.trainable) || parameter.trainable;
  unit.extent = (extent + multiple - 1) / multiple * multiple;
  rows_.push_back(std::move(parameter));
  return static_cast<int>(rows_.size()) - 1;
}

void ParameterTable::freeze(int tensor) {
  for (Parameter& row : rows_) {
    if (row.tensor == tensor) row.trainable = false;
  }
  for (int unit = 0; unit < num_units(); ++unit) {
    units_[static_cast<std::size_t>(unit)].trainable =
        is_trainable(unit, 0, units_[static_cast<std::size_t>(unit)].extent);
  }
}

int ParameterTable::add_adapters(int unit) {
  if (!has_adapters()) {
    for (Unit& each : units_) {
      each.is_base = true;
      each.trainable = false;
    }
    for (Parameter& row : rows_) row.trainable = false;
  }
  const int added = add_unit("adapters of " + this->unit(unit).name, kAdapterSlot);
  units_.back().beside = unit;
  return added;
}

std::span<const Parameter> ParameterTable::rows_of(int unit) const { return rows_with(rows_, &Parameter::unit, unit); }

std::span<const Parameter> ParameterTable::rows_of_tensor(int tensor) const {
  return rows_with(rows_, &Parameter::tensor, tensor);
}

int ParameterTable::num_slots() const {
  int slots = 0;
  for (const auto& unit : units_) slots = std::max(slots, unit.slot + 1);
  return slots;
}

std::int64_t ParameterTable::slot_extent(int slot) const {
  std::int64_t extent = 0;
  for (const auto& unit : units_) {
    if (unit.slot == slot) extent = std::max(extent, unit.extent);
  }
  return extent;
}

std::int64_t ParameterTable::extent() const { return units_.empty() ? 0 : units_.back().offset + units_.back().extent; }

std::size_t ParameterTable::num_base_tensors() const {
  int tensors = 0;
  while (tensors < std::ssize(tensors_) && is_base(tensors)) ++tensors;
  return static_cast<std::size_t>(tensors);
}

std::int64_t ParameterTable::num_parameters() const {
  std::int64_t sum = 0;
  for (const auto& tensor : tensors_) sum += tensor.extent();
  return sum;
}

bool ParameterTable::is_trainable(int unit, std::int64_t begin, std::int64_t extent) const {
  return std::ranges::any_of(
      rows_of(unit), [&](const Parameter& row) { return row.trainable && row.part_in(begin, extent).extent > 0; });
}

std::int64_t ParameterTable::num_trainable() const {
  std::int64_t sum = 0;
  for (const Parameter& row : rows_) sum += row.trainable ? row.extent() : 0;
  return sum;
}

int ParameterTable::first_trainable_unit() const {
  int first = num_units();
  for (int i = 0; i < num_units(); ++i) {
    if (unit(i).trainable) first = std::min(first, unit(i).beside >= 0 ? unit(i).beside : i);
  }
  return first;
}

int ParameterTable::adapters_of(int unit) const {
  if (!has_adapters()) return -1;
  const auto found = std::ranges::find(units_, unit, &Unit::beside);
  return found == units_.end() ? -1 : static_cast<int>(found - units_.begin());
}

template <class LeftOut>
ParameterTable ParameterTable::without(const LeftOut& left_out) const {
  ParameterTable table = *this;
  std::int64_t offset = 0;
  for (Unit& unit : table.units_) {
    if (left_out(unit)) unit.extent = 0;
    unit.offset = offset;
    offset += unit.extent;
  }
  std::erase_if(table.rows_, [&](const Parameter& row) { return left_out(unit(row.unit)); });
  return table;
}

ParameterTable ParameterTable::without_frozen_units() const {
  return without([](const Unit& unit) { return !unit.trainable; });
}

ParameterTable ParameterTable::without_base() const {
  return without([](const Unit& unit) { return unit.is_base; });
}

ParameterTable ParameterTable::without_units() const {
  return without([](const Unit& /*unit*/) { return true; });
}

ParameterTable ParameterTable::base() const {
  return without([](const Unit& unit) { return !unit.is_base; });
}

ShardLayout::ShardLayout(const ParameterTable& table, int num_ranks, int rank) {
  for (int unit = 0; unit < table.num_units(); ++unit) {
    const Partition& partition = partitions_.emplace_back(table.unit(unit).extent, num_ranks);
    shards_.push_back({unit, partition.begin(rank), partition.size(rank), extent_});
    extent_ += partition.size(rank);
  }
}

SlotBuffers::SlotBuffers(const ParameterTable& table, int ahead, int held)
    : of_unit_(static_cast<std::size_t>(table.num_units())) {
  for (int slot = 0; slot < table.num_slots(); ++slot) {
    auto units = units_in(table, slot);
    const int together = (slot == kBlockSlot || slot == kAdapterSlot ? held : 1) + ahead;
    const std::size_t wanted = are_consecutive(units) ? static_cast<std::size_t>(together) : 1;
    std::erase_if(units, [&](int unit) { return table.unit(unit).extent == 0; });
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

}  // namespace kozero
