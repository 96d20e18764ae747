// SPDX-FileCopyrightText: The KoZeRO authors
// SPDX-License-Identifier: Apache-2.0
#include "first_steps.hpp"

#include "initial_model.hpp"

namespace kozero::commands {

FirstSteps::FirstSteps(const train::Settings& settings, const train::DataSet& data, const Session& session)
    : comm_(session.connect(ledger_)),
      assembly_(settings, *comm_, ledger_),
      sampler_(settings.seed, data.train->num_samples(), settings.batch.global_batch),
      trainer_(assembly_.parts(), assembly_.loader(), sampler_, *data.train, settings.step) {
  begin_weights(session.deck(), assembly_, *comm_);
}

std::vector<double> FirstSteps::weight_hashes() {
  return comm_->gather_control({assembly_.state().weights().hash_of_my_slices()});
}

}  // namespace kozero::commands
