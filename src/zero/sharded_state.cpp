// SPDX-FileCopyrightText: The KoZeRO authors
// SPDX-License-Identifier: Apache-2.0
#include <kozero/core/random.hpp>
#include <kozero/zero/sharded_state.hpp>

namespace kozero::zero {

using dist::Placement;

namespace {

/// A master is updated beside the optimizer's state, so it lies as that does.
WeightPlacements placements_of(const PlacementRow& row) { return {row.parameters, row.optimizer}; }

}  // namespace

ShardedState::ShardedState(const ParameterTable& table, dist::Communicator& comm, const Config& config,
                           std::unique_ptr<Weights> weights, MemoryLedger& ledger)
    : table_(table),
      row_(placement_row(config.stage)),
      weights_(std::move(weights)),
      gradients_(table, comm, row_.gradients, config.accumulation, config.micro_steps, ledger, config.overlap) {
  const auto& master = weights_->master();
  if (row_.optimizer == Placement::sharded) {
    for (const auto& range : weights_->layout().shards()) {
      const int unit = range.unit;
      update_ranges_.push_back({range, master.shard(unit), weights_->stored_shard(unit), gradients_.shard(unit)});
    }
    return;
  }
  for (int unit = 0; unit < table.num_units(); ++unit) {
    const UnitRange all{unit, 0, table.unit(unit).extent, table.unit(unit).offset};
    update_ranges_.push_back({all, master.full(unit), weights_->stored_unit(unit), gradients_.full(unit)});
  }
}

void ShardedState::initialise(std::uint64_t seed) {
  for (const auto& range : weights_->layout().shards()) {
    const Vector<float> mine = weights_->master().shard(range.unit);
    const auto on_host = Kokkos::create_mirror_view(Kokkos::HostSpace(), mine);
    const HostVector<float> values(on_host.data(), on_host.extent(0));
    fill_initial_unit(table_, range.unit, seed, range.begin, values);
    Kokkos::deep_copy(mine, on_host);
  }
  weights_->publish();
}

void ShardedState::publish() {
  if (row_.optimizer == Placement::sharded) weights_->share();
}

template <class Scalar>
ShardedStateOf<Scalar>::ShardedStateOf(const ParameterTable& table, dist::Communicator& comm, const Config& config,
                                       MemoryLedger& ledger)
    : ShardedState(table, comm, config,
                   std::make_unique<WeightsOf<Scalar>>(table, comm, placements_of(placement_row(config.stage)), ledger,
                                                       config.prefetch_units),
                   ledger),
      weights_of_(static_cast<WeightsOf<Scalar>&>(weights())) {}

#define KOZERO_INSTANTIATE(T) template class ShardedStateOf<T>;
KOZERO_FOR_STORED_TYPES(KOZERO_INSTANTIATE)

}  // namespace kozero::zero
