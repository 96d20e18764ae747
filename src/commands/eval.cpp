// SPDX-FileCopyrightText: The KoZeRO authors
// SPDX-License-Identifier: Apache-2.0
#include <cmath>
#include <filesystem>
#include <iostream>

#include <nlohmann/json.hpp>

#include <kozero/core/error.hpp>
#include <kozero/train/data_check.hpp>
#include <kozero/train/data_set.hpp>
#include <kozero/train/evaluation.hpp>

#include "banner.hpp"
#include "deck_arguments.hpp"
#include "trained_model.hpp"

namespace kozero::commands {
namespace {

[[noreturn]] void refuse(const std::string& text) { throw Error(Failure::deck, text, Error::Seen::by_all_ranks); }

/// Text is read with the weights' own tokenizer: one learned anew from text that has changed would name other ids. Text
/// given here is read whole: nothing of it is kept for training.
io::Deck evaluated_deck(TrainedModel& trained, const DeckArguments& named) {
  const WeightsSource& source = trained.source();
  io::Deck deck = trained.deck();
  const bool own_data = !named.gives("data.");
  if (own_data && source.deck.empty()) {
    refuse(source.path + ": no data come with it: give some, for example 'data.text=[\"FILE\"]'");
  }
  if (!own_data) deck.data.val_fraction = 0.0;
  if (named.gives("data.tokenizer")) return deck;
  if (!source.tokenizer.empty()) deck.data.tokenizer = source.tokenizer;
  if (source.tokenizer.empty()) deck.origins.erase("data.tokenizer");  // a resolved deck writes the default down
  if (source.tokenizer.empty() && !own_data && !deck.data.text.empty()) {
    refuse("no text without a tokenizer: " + source.no_tokenizer + ": give data.tokens, or data.tokenizer=FILE");
  }
  return deck;
}

/// Where tokens of the evaluated text are kept: in the run's folder, of a checkpoint beside it; else under runs/.
std::string cache_of(const TrainedModel& trained) {
  const WeightsSource& source = trained.source();
  if (source.deck.empty()) return trained.deck().run.dir + "-eval-tokens";
  return (std::filesystem::path(source.path).parent_path() / "eval-tokens").string();
}

}  // namespace

void eval(const dist::Environment& environment, const Arguments& arguments) {
  CLI::App app("DECK | RUN | WEIGHTS | CHECKPOINT | HF_FOLDER [data.key=value ...] [--json]", "eval");
  DeckArguments named;
  named.add_to(app);
  bool as_json = false;
  app.add_flag("--json", as_json);
  parse(app, arguments);

  TrainedModel trained(named.path, named.overrides, environment);
  const bool own_data = !named.gives("data.");
  const io::Deck deck = evaluated_deck(trained, named);
  const train::DataSet data = train::open_data(deck, trained.settings().model.seq, cache_of(trained),
                                               trained.session().control());
  if (deck.model.arch != "linear") trained.accept_vocabulary(data.vocab);
  const train::SampleSource* source = own_data ? data.validation.get() : data.train.get();
  const auto& bytes_per_token = own_data ? data.validation_bytes_per_token : data.train_bytes_per_token;
  if (source == nullptr) {
    throw Error(Failure::deck, "the run kept no validation data: name some, for example 'data.text=[\"FILE\"]'",
                Error::Seen::by_all_ranks);
  }
  train::DataCheck({own_data ? data.validation_shards : data.train_shards}, trained.session().control())
      .finish(trained.session().control());
  train::BatchLoader loader(trained.settings().batch.micro_batch, trained.settings().model.seq, trained.ledger());
  const train::Evaluator evaluator{trained.network(), trained.comm(), loader,
                                   trained.settings().batch.micro_batch};
  const train::Evaluation result = train::evaluate(evaluator, *source, 0);
  if (environment.rank() != 0) return;
  std::cout << evaluation_line(result.loss, bytes_per_token) << ", " << result.tokens << " tokens" << std::endl;
  if (!as_json) return;
  nlohmann::ordered_json json = {{"loss", result.loss},
                                 {"perplexity", std::exp(result.loss)},
                                 {"bits_per_byte", nullptr},
                                 {"tokens", result.tokens}};
  if (bytes_per_token) json["bits_per_byte"] = bits_per_byte(result.loss, *bytes_per_token);
  std::cout << json.dump() << std::endl;
}

}  // namespace kozero::commands
