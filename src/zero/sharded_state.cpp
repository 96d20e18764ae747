// SPDX-FileCopyrightText: The KoZeRO authors
// SPDX-License-Identifier: Apache-2.0
// sharded_state.cpp: construction of a rank's weights, gradients and update ranges, and their initialization.
#include <utility>

#include <kozero/core/disk_memory.hpp>
#include <kozero/core/error.hpp>
#include <kozero/core/random.hpp>
#include <kozero/zero/sharded_state.hpp>

namespace kozero::zero {

using distributed::Placement;

namespace {

/// Master weights have the placement of the optimizer's states, since both are updated together.
WeightPlacements placements_of(const PlacementRow& row, bool trains) { return {row.parameters, row.optimizer, trains}; }

}  // namespace

template <class Scalar>
ShardedState<Scalar>::ShardedState(const ParameterTable& table, const distributed::Mesh& mesh, const Config& config,
                                   MemoryLedger& ledger, StateMemory memory)
    : table_(table),
      row_(placement_row(config.stage)),
      weights_(table, mesh, placements_of(row_, config.trains), ledger, {config.prefetch_units, config.units_held},
               memory, config.base) {
  if (!config.trains) return;
  gradients_.emplace(table, mesh, row_.gradients, config.accumulation, config.micro_steps, ledger, config.overlap);
  const auto& master = weights_.master();
  const auto& stored = weights_.stored();
  std::int64_t first = 0;
  for (int unit = 0; unit < table.num_units(); ++unit) {
    if (!table.unit(unit).trainable) continue;
    UnitRange range = updates_whole_units() ? UnitRange{unit, 0, table.unit(unit).extent} : master.layout().shard(unit);
    range.first = std::exchange(first, first + range.extent);
    updated_units_.push_back(unit);
    if (updates_whole_units()) {
      update_ranges_.push_back({range, master.full(unit), stored.full(unit), gradients_->full(unit)});
    } else {
      update_ranges_.push_back({range, master.shard(unit), stored.shard(unit), gradients_->shard(unit)});
    }
  }
}

template <class Scalar>
void ShardedState<Scalar>::initialize(std::uint64_t seed) {
  for (const auto& range : weights_.master().layout().shards()) {
    if (table_.unit(range.unit).is_base) continue;
    if (!weights_.is_in_master(range.unit)) {
      const UnitRange part = weights_.range_to_put(range.unit);
      std::vector<float> memory(static_cast<std::size_t>(part.extent));
      const HostVector<float> values(memory.data(), memory.size());
      fill_initial_unit(table_, part.unit, seed, part.begin, values);
      weights_.put(part.unit, part.begin, values);
      continue;
    }
    const Vector<float> mine = weights_.master().shard(range.unit);
    const auto on_host = Kokkos::create_mirror_view(Kokkos::HostSpace(), mine);
    const HostVector<float> values(on_host.data(), on_host.extent(0));
    fill_initial_unit(table_, range.unit, seed, range.begin, values);
    Kokkos::deep_copy(mine, on_host);
    release_pages(mine);
  }
  weights_.publish();
}

template <class Scalar>
void ShardedState<Scalar>::finish_gradients() {
  gradients().finish();
  weights_.wait_until_reusable();
}

template <class Scalar>
void ShardedState<Scalar>::publish_update() {
  if (row_.optimizer == Placement::sharded) weights_.share(updated_units_);
}

template <class Scalar>
Gradients& ShardedState<Scalar>::gradients() {
  require(gradients_.has_value(), "weights without training have no gradients");
  return *gradients_;
}

#define KOZERO_INSTANTIATE(T) template class ShardedState<T>;
KOZERO_FOR_STORED_TYPES(KOZERO_INSTANTIATE)

}  // namespace kozero::zero
