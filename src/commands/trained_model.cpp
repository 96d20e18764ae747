// SPDX-FileCopyrightText: The KoZeRO authors
// SPDX-License-Identifier: Apache-2.0
#include <filesystem>

#include <kozero/dist/agreed.hpp>
#include <kozero/io/checkpoint.hpp>

#include "trained_model.hpp"

namespace kozero::commands {

TrainedModel::TrainedModel(const std::string& path, const std::vector<std::string>& overrides,
                           const dist::Environment& environment)
    : session_(environment, [&] { return (run_ = train::find_run(path, overrides)).deck; }),
      settings_(
          dist::agreed(session_.control(), [&] { return train::settings_of(run_.deck, environment.size(), 0, 0); })),
      comm_(session_.connect(ledger_)),
      model_(model::make_model<float>(settings_.model)),
      weights_(std::make_unique<zero::FrozenWeights>(model_->parameters(), *comm_, settings_.zero.stage, ledger_)) {
  model_->reserve(ledger_, settings_.batch.micro_batch);
  const std::filesystem::path file(run_.weights);
  if (file.filename() == io::kStateFile) io::verify_checkpoint(*comm_, file.parent_path().string());
  description_ = train::load_weights(run_.weights, model_->parameters(), weights_->weights(), *comm_);
}

}  // namespace kozero::commands
