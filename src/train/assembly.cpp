// SPDX-FileCopyrightText: The KoZeRO authors
// SPDX-License-Identifier: Apache-2.0
#include <kozero/kernels/matmul.hpp>
#include <kozero/train/assembly.hpp>
#include <kozero/train/checkpoint.hpp>

namespace kozero::train {

template <class Scalar>
void Assembly::store_weights_as(const Settings& settings, MemoryLedger& ledger) {
  auto model = model::make_model<Scalar>(settings.model);
  auto state = std::make_unique<zero::ShardedStateOf<Scalar>>(model->parameters(), comm_, settings.zero, ledger);
  network_ = std::make_unique<model::NetworkOf<Scalar>>(std::move(model), *state);
  state_ = std::move(state);
}

Assembly::Assembly(const Settings& settings, dist::Communicator& comm, MemoryLedger& ledger) : comm_(comm) {
  with_stored_type(settings.precision, [&](auto type) { store_weights_as<decltype(type)>(settings, ledger); });
  loader_ = std::make_unique<BatchLoader>(settings.batch.micro_batch, settings.model.seq, ledger,
                                          settings.batch.micro_steps);
  std::vector<UnitRange> ranges;
  for (const auto& piece : state_->pieces()) ranges.push_back(piece.range);
  optimizer_ = optim::make_optimizer(settings.optim, optim::segments_of(network_->parameters(), ranges), ledger);
  network_->reserve(ledger, settings.batch.micro_batch);
  ledger.book(Memory::workspace, "matrix products", kernels::product_workspace());
  if (!settings.staged) return;
  staging_ = std::make_unique<Staging>(owned_state(parts()), settings.staging_mib, ledger);
}

}  // namespace kozero::train
