// SPDX-FileCopyrightText: The KoZeRO authors
// SPDX-License-Identifier: Apache-2.0
#include <algorithm>

#include <kozero/zero/slot_buffers.hpp>

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

}  // namespace kozero::zero
