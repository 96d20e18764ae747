// SPDX-FileCopyrightText: The KoZeRO authors
// SPDX-License-Identifier: Apache-2.0
#include <kozero/core/error.hpp>
#include <kozero/dist/agreed.hpp>

#include "trained_model.hpp"

namespace kozero::commands {

TrainedModel::TrainedModel(const std::string& path, const std::vector<std::string>& overrides,
                           const dist::Environment& environment, Use use)
    : session_(environment,
               [&](dist::Communicator& comm) {
                 source_ = find_weights(path, comm);
                 return dist::agreed(comm, [&] { return deck_of(source_, overrides); });
               }),
      settings_(dist::agreed(session_.control(),
                             [&] { return train::settings_of(session_.deck(), environment.size(), 0, 0); })),
      comm_(session_.connect(ledger_)) {
  auto model = model::make_model<float>(settings_.model);
  require_tensors(source_, settings_.model, model->parameters(), session_.control());
  weights_ = std::make_unique<zero::FrozenWeights>(model->parameters(), *comm_, settings_.zero.stage, ledger_,
                                                    settings_.zero.prefetch_units);
  network_ = std::make_unique<model::NetworkOf<float>>(std::move(model), *weights_);
  if (use == Use::evaluation) network_->reserve(ledger_, settings_.batch.micro_batch);
  load(source_, settings_.model, network_->parameters(), weights_->weights(), session_.control());
}

void TrainedModel::accept_vocabulary(std::int64_t ids) const {
  if (ids <= settings_.model.vocab) return;
  throw Error(Failure::deck, "the tokenizer has " + std::to_string(ids) + " ids, more than the " +
                                 std::to_string(settings_.model.vocab) + " of " + source_.path,
              Error::Seen::by_all_ranks);
}

}  // namespace kozero::commands
