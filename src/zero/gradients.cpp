// SPDX-FileCopyrightText: The KoZeRO authors
// SPDX-License-Identifier: Apache-2.0
// gradients.cpp: when addends are cleared, reduced and gathered, and their norm.
#include <algorithm>
#include <bit>
#include <cmath>

#include <kozero/core/error.hpp>
#include <kozero/distributed/agreement.hpp>
#include <kozero/zero/gradients.hpp>
#include "kernels/launch/exact_sum.hpp"
#include "kernels/launch/fill.hpp"
#include "kernels/launch/reduce.hpp"

namespace kozero::zero {

using distributed::DistributedArray;
using distributed::Placement;
using distributed::Storage;

namespace {

std::size_t at(int index) { return static_cast<std::size_t>(index); }

/// Addends of sharded gradients share buffers: two per slot if reductions overlap the next unit's backward, else one.
Storage storage_of_addends(Placement placement, const distributed::Mesh& mesh, bool overlap) {
  if (placement != Placement::sharded) return {Memory::gradients, "gradients", &mesh.all()};
  return {Memory::gathered, "unreduced gradients", &mesh.all(), overlap ? 1 : 0};
}

bool sums_lookups(const Unit& unit) { return unit.vocabulary == VocabularyUse::both && unit.trainable; }

/// The units that train, with one unit of lookup gradients appended for each block of a tied vocabulary.
ParameterTable with_lookups(const ParameterTable& table) {
  ParameterTable all = table.without_frozen_units();
  for (int unit = 0; unit < table.num_units(); ++unit) {
    if (!sums_lookups(table.unit(unit))) continue;
    all.add_unit(table.unit(unit).name + " lookups", table.unit(unit).slot);
    for (Parameter row : table.rows_of(unit)) {
      row.overwritten = false;
      all.add(std::move(row));
    }
  }
  return all;
}

std::vector<int> numbers_of_lookups(const ParameterTable& table) {
  std::vector<int> numbers;
  int next = table.num_units();
  for (const Unit& unit : table.units()) numbers.push_back(sums_lookups(unit) ? next++ : -1);
  return numbers;
}

std::vector<int> trainable_units(const ParameterTable& table) {
  std::vector<int> units;
  for (int unit = 0; unit < table.num_units(); ++unit) {
    if (table.unit(unit).trainable) units.push_back(unit);
  }
  return units;
}

}  // namespace

Gradients::Gradients(const ParameterTable& table, const distributed::Mesh& mesh, Placement placement,
                     Accumulation accumulation, int micro_steps, MemoryLedger& ledger, bool overlap)
    : table_(table),
      units_(trainable_units(table)),
      lookups_of_(numbers_of_lookups(table)),
      sums_table_(with_lookups(table)),
      placement_(placement),
      accumulation_(accumulation),
      micro_steps_(micro_steps),
      overlap_(overlap),
      addends_(sums_table_, mesh, Placement::partial, storage_of_addends(placement, mesh, overlap), ledger),
      reduced_(addends_.viewed_as(Placement::in_last_group)),
      reductions_(at(sums_table_.num_units())),
      occupants_(addends_.num_buffers(), -1),
      open_(at(sums_table_.num_units()), false) {
  const bool sharded = placement == Placement::sharded;
  require(!sharded || accumulation == Accumulation::ordered || micro_steps == 1,
          "sharded gradients keep no whole addend from one micro-step to the next");
  if (sharded || (accumulation == Accumulation::ordered && micro_steps > 1)) {
    const char* label = sharded ? "gradient shards" : "sums of micro-steps";
    sums_.emplace(sums_table_, mesh, Placement::in_last_group, Storage{Memory::gradients, label}, ledger);
    reduced_ = *sums_;
  }
  if (!ledger.plans_only()) squares_ = std::make_unique<kernels::SumOfSquares>();
}

Gradients::~Gradients() = default;

void Gradients::begin_micro_step(const MicroStep& micro_step) {
  require(micro_step.count <= micro_steps_ && micro_step.index < micro_step.count, "a step has too many micro-steps");
  for (int unit = 0; unit < sums_table_.num_units(); ++unit) {
    require(!open_[at(unit)], "gradient of unit " + sums_table_.unit(unit).name + " was never ready");
  }
  micro_step_ = micro_step;
}

bool Gradients::reduces_now() const {
  return accumulation_ == Accumulation::ordered || micro_step_.index == micro_step_.count - 1;
}

void Gradients::clear(int unit) const {
  const Vector<float> memory = addends_.full(unit);
  std::int64_t first = 0;
  const auto clear_up_to = [&](std::int64_t end) {
    if (end > first) kernels::fill(Device(), slice(memory, first, end - first), 0.0F);
  };
  for (const auto& row : sums_table_.rows_of(unit)) {
    if (!row.overwritten) continue;
    clear_up_to(row.offset);
    first = row.offset + row.extent();
  }
  clear_up_to(sums_table_.unit(unit).extent);
}

void Gradients::clear_frozen(int unit) const {
  for (const auto& row : sums_table_.rows_of(unit)) {
    if (!row.trainable) kernels::fill(Device(), slice(addends_.full(unit), row.offset, row.extent()), 0.0F);
  }
}

int Gradients::lookups_of(int unit) const {
  if (!table_.unit(unit).trainable) return unit;
  require(lookups_of_.at(at(unit)) >= 0, "unit " + table_.unit(unit).name + " has no lookups apart");
  return lookups_of_[at(unit)];
}

UnitGradient Gradients::addend(int unit) {
  if (!sums_table_.unit(unit).trainable) return {};
  const Vector<float> memory = addends_.full(unit);
  if (open_[at(unit)]) return {memory, false};
  if (occupant(unit) >= 0) wait_until_reusable(occupant(unit));
  occupant(unit) = unit;
  const bool begins = accumulation_ == Accumulation::ordered || micro_step_.index == 0;
  if (begins) clear(unit);
  if (!begins) check_rested(unit, memory);
  open_[at(unit)] = true;
  return {memory, begins};
}

void Gradients::ready(int unit) {
  if (!sums_table_.unit(unit).trainable) return;
  const auto [memory, untouched] = addend(unit);
  if (untouched) kernels::fill(Device(), memory, 0.0F);
  clear_frozen(unit);
  open_[at(unit)] = false;
  if (!reduces_now()) return note_resting(unit, memory);
  const int before = under_way_;
  start_reduction(unit);
  if (before >= 0) wait_for_reduction(before);
  if (!overlap_) wait_until_reusable(unit);
}

void Gradients::start_reduction(int unit) {
  const bool ordered = accumulation_ == Accumulation::ordered;
  const bool first = micro_step_.index == 0;
  // Under `local`, a rank without work in the last micro-step may have had work before, so all ranks are added.
  const distributed::Fold fold{.ranks = ordered || first ? micro_step_.ranks : 0, .onto = ordered && !first};
  if (fold.onto) check_rested(unit, shard(unit));
  reductions_[at(unit)] = redistribute(addends_, reduced_, unit, fold);
  under_way_ = unit;
  acquired_since_ = 0;
}

void Gradients::note_acquired_unit() {
  constexpr int kMost = 8;  // acquired units, each one gather: within collectives_under_way
  if (under_way_ >= 0 && ++acquired_since_ > kMost) wait_for_reduction(under_way_);
}

void Gradients::wait_for_reduction(int unit) {
  if (under_way_ == unit) under_way_ = -1;
  reductions_[at(unit)].wait();
  note_resting(unit, shard(unit));
}

void Gradients::note_resting(int unit, const Vector<float>& values) {
  if (watches_) resting_[at(unit)] = kernels::bit_hash(Device(), Vector<const float>(values));
}

void Gradients::check_rested(int unit, const Vector<float>& values) {
  if (!watches_ || !changed_.empty()) return;
  if (kernels::bit_hash(Device(), Vector<const float>(values)) == resting_[at(unit)]) return;
  changed_ = sums_table_.unit(unit).name;
}

void Gradients::watch(bool watches) {
  watches_ = watches;
  resting_.resize(at(sums_table_.num_units()));
  changed_.clear();
}

std::string Gradients::first_changed() {
  for (const int unit : units_) check_rested(unit, shard(unit));
  return changed_;
}

void Gradients::wait_until_reusable(int unit) {
  if (reductions_[at(unit)].is_under_way()) wait_for_reduction(unit);
  reductions_[at(unit)].wait_until_reusable();
}

void Gradients::add_lookups() {
  for (const int unit : units_) {
    const int lookups = lookups_of_[at(unit)];
    if (lookups < 0) continue;
    for (const int each : {unit, lookups}) {
      wait_until_reusable(each);
      check_rested(each, shard(each));
    }
    kernels::add_into(Device(), shard(unit), Vector<const float>(shard(lookups)));
    note_resting(unit, shard(unit));
  }
}

void Gradients::finish() {
  if (under_way_ >= 0) wait_for_reduction(under_way_);
  add_lookups();
  const bool is_whole = placement_ == Placement::replicated;
  if (!is_whole && addends_.mesh().num_groups() == 1) return;
  for (const int unit : units_) wait_until_reusable(unit);
  redistribute_units(
      reduced_, is_whole ? addends_.viewed_as(Placement::replicated) : reduced_.viewed_as(Placement::sharded), units_);
  if (is_whole) return;
  for (const int unit : units_) note_resting(unit, shard(unit));
}

Vector<float> Gradients::full(int unit) const {
  require(placement_ == Placement::replicated, "only replicated gradients are whole at rest");
  return addends_.full(unit);
}

double Gradients::norm() {
  squares_->clear();
  for (const int unit : units_) squares_->add(shard(unit));
  const distributed::Mesh& mesh = addends_.mesh();
  kernels::ExactSum sum = squares_->sum();  // integers below 2^32, so their sums do not depend on the ranks' order
  std::ranges::copy(mesh.group().sum_control(sum.words), sum.words.begin());
  sum.normalize();
  const double norm = std::sqrt(sum.value());
  if (mesh.num_groups() == 1) return norm;
  const auto of_groups = distributed::from_all_ranks(mesh.replicas(), std::bit_cast<std::uint64_t>(norm));
  const auto other = std::ranges::find_if(of_groups, [&](std::uint64_t each) { return each != of_groups.front(); });
  if (other == of_groups.end()) return norm;
  throw Error(Failure::internal,
              "the finished gradients of groups 0 and " + std::to_string(other - of_groups.begin()) +
                  " (zero.shard_group) have different norms: a rank stores or receives wrongly; resume from a "
                  "checkpoint older than the last complete step, whose own may have the change",
              Error::Seen::by_all_ranks);
}

std::string Gradients::first_non_finite() const {
  std::int64_t found = table_.extent();
  for (const int unit : units_) {
    if (found < table_.extent()) break;
    const std::int64_t index = kernels::first_non_finite(Device(), Vector<const float>(shard(unit)));
    if (index >= 0) found = table_.unit(unit).offset + addends_.layout().shard(unit).begin + index;
  }
  for (const std::int64_t other : distributed::from_all_ranks(addends_.mesh().all(), found))
    found = std::min(found, other);
  for (const auto& row : table_.rows()) {
    const std::int64_t first = table_.unit(row.unit).offset + row.offset;
    if (found >= first && found < first + row.extent()) return row.name;
  }
  return "";
}

}  // namespace kozero::zero
