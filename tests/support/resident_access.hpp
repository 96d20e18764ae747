// SPDX-FileCopyrightText: The KoZeRO authors
// SPDX-License-Identifier: Apache-2.0
// resident_access.hpp: a ParameterAccess with all units in memory, to test a model without zero.
// It records each call, and rejects violations of the contract: a unit acquired twice, or more acquired units per slot
// than a model may have at once.
#pragma once
#include <set>
#include <string>
#include <vector>

#include <kozero/core/error.hpp>
#include <kozero/core/parameter_access.hpp>
#include <kozero/core/parameter_table.hpp>
#include <kozero/core/random.hpp>

namespace kozero::tests {

class ResidentAccess : public ParameterAccess<float> {
 public:
  explicit ResidentAccess(const ParameterTable& table)
      : table_(table),
        weights_("weights", static_cast<std::size_t>(table.extent())),
        gradients_("gradients", static_cast<std::size_t>(table.extent())) {}

  Vector<const float> acquire(int unit) override {
    int of_slot = 0;
    for (const int other : held_) of_slot += table_.unit(other).slot == table_.unit(unit).slot ? 1 : 0;
    require(of_slot < units_held, "slot of unit " + std::to_string(unit) + " in use");
    require(held_.insert(unit).second, "unit acquired twice");
    calls.push_back("acquire " + table_.unit(unit).name);
    return part(weights_, unit);
  }
  void release(int unit) override {
    require(held_.erase(unit) == 1, "release of a unit that is not held");
    calls.push_back("release " + table_.unit(unit).name);
  }
  UnitGradient gradient(int unit) override { return {part(gradients_, unit), false}; }
  void gradient_ready(int unit) override { calls.push_back("ready " + table_.unit(unit).name); }
  UnitGradient lookup_gradient(int unit) override {
    require(table_.unit(unit).vocabulary == VocabularyUse::both, "a unit without lookups apart");
    return gradient(unit);
  }
  void lookup_gradient_ready(int unit) override { calls.push_back("ready lookups " + table_.unit(unit).name); }

  void fill_initial(std::uint64_t seed) {
    const auto host = Kokkos::create_mirror_view(weights_);
    for (int unit = 0; unit < table_.num_units(); ++unit) {
      const auto offset = static_cast<std::size_t>(table_.unit(unit).offset);
      const auto extent = static_cast<std::size_t>(table_.unit(unit).extent);
      fill_initial_unit(table_, unit, seed, 0, HostVector<float>(host.data() + offset, extent));
    }
    Kokkos::deep_copy(weights_, host);
  }
  void clear_gradients() { Kokkos::deep_copy(gradients_, 0.0F); }

  [[nodiscard]] std::vector<float> weight(int row) const { return copy_of(weights_, row); }
  [[nodiscard]] std::vector<float> gradient_of(int row) const { return copy_of(gradients_, row); }
  void set_weight(int row, const std::vector<float>& values) {
    const HostVector<const float> source(values.data(), values.size());
    Kokkos::deep_copy(view_of(weights_, row), source);
  }
  /// The device memory of one tensor's weights or gradient.
  [[nodiscard]] Vector<float> weight_view(int row) const { return view_of(weights_, row); }
  [[nodiscard]] Vector<float> gradient_view(int row) const { return view_of(gradients_, row); }
  [[nodiscard]] bool holds_any() const { return !held_.empty(); }

  std::vector<std::string> calls;
  int units_held = 1;  ///< most acquired units per slot

 private:
  using Storage = Kokkos::View<float*, Kokkos::LayoutRight, DeviceMemory>;

  [[nodiscard]] Vector<float> part(const Storage& all, int unit) const {
    return Vector<float>(all.data() + table_.unit(unit).offset, static_cast<std::size_t>(table_.unit(unit).extent));
  }
  [[nodiscard]] Vector<float> view_of(const Storage& all, int row) const {
    const Parameter& parameter = table_.row(row);
    return slice(part(all, parameter.unit), parameter.offset, parameter.extent());
  }
  [[nodiscard]] std::vector<float> copy_of(const Storage& all, int row) const {
    std::vector<float> values(static_cast<std::size_t>(table_.row(row).extent()));
    Kokkos::deep_copy(HostVector<float>(values.data(), values.size()), view_of(all, row));
    return values;
  }

  const ParameterTable& table_;
  Storage weights_;
  Storage gradients_;
  std::set<int> held_;
};

}  // namespace kozero::tests
