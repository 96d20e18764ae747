// SPDX-FileCopyrightText: The KoZeRO authors
// SPDX-License-Identifier: Apache-2.0
#include <kozero/dist/agreed.hpp>
#include <kozero/io/run_folder.hpp>
#include <kozero/train/checkpoint.hpp>

#include "initial_model.hpp"
#include "memory_room.hpp"
#include "unsaved_run.hpp"

namespace kozero::commands {
namespace {

/// Nothing is saved, so nothing is staged.
io::Deck without_saving(io::Deck deck) {
  deck.checkpoint.async = false;
  return deck;
}

}  // namespace

train::DataSet open_data_of(const io::Deck& deck, dist::Communicator& comm) {
  const auto seq = dist::agreed(comm, [&] { return train::model_config(deck, train::vocab_of(deck)).seq; });
  train::DataSet data = train::open_data(deck, seq, io::without_trailing_slash(deck.run.dir) + "-tokens", comm);
  dist::agreed(comm, [&] { train::require_whole_sample(data, deck, seq); });
  return data;
}

UnsavedRun::UnsavedRun(Session& session, io::Deck deck, const train::DataSet& data,
                       const std::optional<io::FoundCheckpoint>& start)
    : settings_(dist::agreed(session.control(), [&] {
        return train::settings_of(without_saving(deck), session.control().size(), data.vocab,
                                  data.train->num_samples());
      })) {
  require_room(plan::memory_plan(settings_, session.backend(), session.control().size()), session, data.vocab);
  comm_ = std::make_unique<dist::CountedCommunicator>(session.connect(ledger_));
  assembly_.emplace(settings_, *comm_, ledger_);
  if (start) {
    train::load_state(start->folder + "/" + io::kStateFile, assembly_->parts(), session.control());
    settings_.step.optimizer_start = start->manifest.record.optimizer_start;
    settings_.step.loss_scaler.restore(start->manifest.record.loss_scale);
  } else {
    begin_weights(deck, *assembly_, *comm_);
  }
  sampler_.emplace(settings_.seed, data.train->num_samples(), settings_.batch.global_batch);
  trainer_.emplace(assembly_->parts(), assembly_->loader(), *sampler_, *data.train, settings_.step);
}

}  // namespace kozero::commands
