// SPDX-FileCopyrightText: The KoZeRO authors
// SPDX-License-Identifier: Apache-2.0
#include <kozero/train/assembly.hpp>
#include <kozero/train/checkpoint.hpp>

namespace kozero::train {

Assembly::Assembly(const Settings& settings, dist::Communicator& comm, MemoryLedger& ledger)
    : comm_(comm),
      model_(model::make_model<float>(settings.model)),
      state_(std::make_unique<zero::ShardedState>(model_->parameters(), comm, settings.zero, ledger)),
      loader_(std::make_unique<BatchLoader>(settings.batch.micro_batch, settings.model.seq, ledger)) {
  std::vector<UnitRange> ranges;
  for (const auto& piece : state_->pieces()) ranges.push_back(piece.range);
  optimizer_ = optim::make_optimizer(settings.optim, optim::segments_of(model_->parameters(), ranges), ledger);
  model_->reserve(ledger, settings.batch.micro_batch);
  if (!settings.staged) return;
  staging_ = std::make_unique<Staging>(owned_state(parts()), settings.staging_mib, ledger);
}

}  // namespace kozero::train
