// SPDX-FileCopyrightText: The KoZeRO authors
// SPDX-License-Identifier: Apache-2.0
#include <cmath>
#include <numeric>

#include <kozero/core/error.hpp>
#include <kozero/core/timing.hpp>
#include <kozero/zero/gradients.hpp>
#include "kernels/launch/fill.hpp"
#include "kernels/launch/reduce.hpp"

namespace kozero::zero {

using dist::DistributedArray;
using dist::Placement;

namespace {
std::size_t at(int index) { return static_cast<std::size_t>(index); }
}  // namespace

Gradients::Gradients(const ParameterTable& table, dist::Communicator& comm, Placement placement,
                     Accumulation accumulation, int micro_steps, MemoryLedger& ledger, bool overlap)
    : table_(table),
      comm_(comm),
      placement_(placement),
      accumulation_(accumulation),
      micro_steps_(micro_steps),
      overlap_(overlap),
      places_(table, overlap ? 1 : 0),
      reductions_(at(table.num_units())),
      open_(at(table.num_units()), false) {
  require(!sharded() || accumulation == Accumulation::reduced || micro_steps == 1,
          "sharded gradients keep no whole addend from one micro-step to the next");
  std::int64_t slices = 0;
  for (const auto& unit : table.units()) {
    partitions_.emplace_back(unit.extent, comm.size());
    first_.push_back(slices);
    slices += partitions_.back().size(comm.rank());
  }
  if (!sharded()) flat_ = ledger.take<float>(Memory::gradients, "gradients", table.extent(), comm);
  if (sharded() || (accumulation == Accumulation::reduced && micro_steps > 1)) {
    sums_ = ledger.take<float>(Memory::gradients, sharded() ? "gradient slices" : "sums of reduced slices", slices);
  }
  for (const auto& [name, extent] : places_.buffers()) {
    if (sharded())
      buffers_.push_back(ledger.take<float>(Memory::gathered, "unreduced gradients, " + name, extent, comm));
  }
  occupants_.assign(sharded() ? buffers_.size() : at(table.num_units()), -1);
  if (!ledger.plans_only()) squares_ = HostScalars("kozero::zero::squares", at(table.num_units()));
}

void Gradients::begin_micro_step(int micro_step) {
  for (int unit = 0; unit < table_.num_units(); ++unit) {
    require(!open_[at(unit)], "gradient of unit " + table_.unit(unit).name + " was never ready");
  }
  micro_step_ = micro_step;
}

bool Gradients::reduces_now() const {
  return accumulation_ == Accumulation::reduced || micro_step_ == micro_steps_ - 1;
}

Vector<float> Gradients::full(int unit) const {
  const Unit& row = table_.unit(unit);
  return sharded() ? slice(buffers_[places_.of(unit)], 0, row.extent) : slice(flat_, row.offset, row.extent);
}

void Gradients::clear(int unit) const {
  const Vector<float> memory = full(unit);
  std::int64_t first = 0;
  const auto clear_up_to = [&](std::int64_t end) {
    if (end > first) kernels::fill(Device(), slice(memory, first, end - first), 0.0F);
  };
  for (const auto& row : table_.rows_of(unit)) {
    if (!row.overwritten) continue;
    clear_up_to(row.offset);
    first = row.offset + row.extent();
  }
  clear_up_to(table_.unit(unit).extent);
}

UnitGradient Gradients::addend(int unit) {
  if (open_[at(unit)]) return {full(unit), false};
  if (occupant(unit) >= 0) wait_for_reduction(occupant(unit));
  occupant(unit) = unit;
  const bool begins = accumulation_ == Accumulation::reduced || micro_step_ == 0;
  if (begins) clear(unit);
  if (!begins) check_rested(unit, full(unit));
  open_[at(unit)] = true;
  return {full(unit), begins};
}

void Gradients::ready(int unit) {
  const auto [memory, untouched] = addend(unit);
  if (untouched) kernels::fill(Device(), memory, 0.0F);
  open_[at(unit)] = false;
  if (!reduces_now()) return note_resting(unit, full(unit));
  const int before = under_way_;
  start_reduction(unit);
  if (before >= 0) finish_reduction(before);
  if (!overlap_) wait_for_reduction(unit);
}

void Gradients::start_reduction(int unit) {
  const Partition& cut = partitions_[at(unit)];
  const Vector<float> memory = full(unit);
  const Vector<float> in_place = slice(memory, cut.begin(comm_.rank()), cut.size(comm_.rank()));
  Reduction& reduction = reductions_[at(unit)];
  reduction.adds = sums_.extent(0) > 0 && micro_step_ > 0;
  DistributedArray<float> addends(comm_, cut, Placement::partial, memory);
  DistributedArray<float> reduced(comm_, cut, Placement::sharded, reduction.adds ? in_place : my_slice(unit));
  position().unit.store(unit, std::memory_order_relaxed);
  reduction.pending = start_redistribute(addends, reduced);
  reduction.state = Reduction::State::started;
  under_way_ = unit;
}

void Gradients::finish_reduction(int unit) {
  Reduction& reduction = reductions_[at(unit)];
  comm_.finish(reduction.pending);
  reduction.state = Reduction::State::finished;
  if (under_way_ == unit) under_way_ = -1;
  if (!reduction.adds) return note_resting(unit, my_slice(unit));
  check_rested(unit, my_slice(unit));
  const Partition& cut = partitions_[at(unit)];
  const Vector<const float> in_place = slice(full(unit), cut.begin(comm_.rank()), cut.size(comm_.rank()));
  kernels::add_into(Device(), my_slice(unit), in_place);
  note_resting(unit, my_slice(unit));
}

void Gradients::note_resting(int unit, const Vector<float>& values) {
  if (watches_) resting_[at(unit)] = kernels::bit_hash(Device(), Vector<const float>(values));
}

void Gradients::check_rested(int unit, const Vector<float>& values) {
  if (!watches_ || !changed_.empty()) return;
  if (kernels::bit_hash(Device(), Vector<const float>(values)) != resting_[at(unit)]) changed_ = table_.unit(unit).name;
}

void Gradients::watch(bool watches) {
  watches_ = watches;
  resting_.resize(at(table_.num_units()));
  changed_.clear();
}

std::string Gradients::first_changed() {
  for (int unit = 0; unit < table_.num_units(); ++unit) check_rested(unit, my_slice(unit));
  return changed_;
}

void Gradients::wait_for_reduction(int unit) {
  Reduction& reduction = reductions_[at(unit)];
  if (reduction.state == Reduction::State::started) finish_reduction(unit);
  if (reduction.state == Reduction::State::finished) comm_.reclaim(reduction.pending);
  reduction.state = Reduction::State::none;
}

void Gradients::finish() {
  if (under_way_ >= 0) finish_reduction(under_way_);
  if (placement_ != Placement::replicated) return;
  for (int unit = 0; unit < table_.num_units(); ++unit) {
    wait_for_reduction(unit);
    DistributedArray<float> sum(comm_, partitions_[at(unit)], Placement::sharded, my_slice(unit));
    DistributedArray<float> everywhere(comm_, partitions_[at(unit)], Placement::replicated, full(unit));
    redistribute(sum, everywhere);
  }
}

Vector<float> Gradients::my_slice(int unit) const {
  const Partition& cut = partitions_[at(unit)];
  const std::int64_t extent = cut.size(comm_.rank());
  if (sums_.extent(0) > 0) return slice(sums_, first_[at(unit)], extent);
  return sharded() ? Vector<float>() : slice(full(unit), cut.begin(comm_.rank()), extent);
}

Vector<float> Gradients::whole(int unit) const {
  require(placement_ == Placement::replicated, "only replicated gradients are whole at rest");
  return full(unit);
}

double Gradients::norm() const {
  for (int unit = 0; unit < table_.num_units(); ++unit) {
    kernels::put_sum_of_squares(Device(), my_slice(unit), &squares_(at(unit)));
  }
  Device().fence("kozero::zero::norm");
  const double sum = std::accumulate(squares_.data(), squares_.data() + squares_.extent(0), 0.0);
  return std::sqrt(sum_in_rank_order(comm_, sum));
}

std::string Gradients::first_non_finite() const {
  std::int64_t found = table_.extent();
  for (int unit = 0; unit < table_.num_units() && found == table_.extent(); ++unit) {
    const std::int64_t index = kernels::first_non_finite(Device(), Vector<const float>(my_slice(unit)));
    if (index >= 0) found = table_.unit(unit).offset + partitions_[at(unit)].begin(comm_.rank()) + index;
  }
  for (const double other : comm_.gather_control({static_cast<double>(found)})) {
    found = std::min(found, static_cast<std::int64_t>(other));
  }
  for (const auto& row : table_.rows()) {
    const std::int64_t first = table_.unit(row.unit).offset + row.offset;
    if (found >= first && found < first + row.extent()) return row.name;
  }
  return "";
}

}  // namespace kozero::zero
