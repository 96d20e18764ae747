// SPDX-FileCopyrightText: The KoZeRO authors
// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <cmath>
#include <iostream>

#include <nlohmann/json.hpp>

#include <kozero/core/error.hpp>
#include <kozero/train/data_set.hpp>
#include <kozero/train/evaluation.hpp>

#include "banner.hpp"
#include "deck_arguments.hpp"
#include "trained_model.hpp"

namespace kozero::commands {

void eval(const dist::Environment& environment, const Arguments& arguments) {
  CLI::App app("DECK | RUN | WEIGHTS [data.key=value ...] [--json]", "eval");
  DeckArguments named;
  named.add_to(app);
  bool as_json = false;
  app.add_flag("--json", as_json);
  parse(app, arguments);

  TrainedModel trained(named.path, named.overrides, environment);
  // Text is read with the run's own tokenizer: one learned anew from text that has changed would name other ids. Text
  // given here is read whole: nothing of it is kept for training.
  io::Deck deck = trained.run().deck;
  if (!trained.run().tokenizer.empty()) deck.data.tokenizer = trained.run().tokenizer;
  const bool own_data = std::none_of(named.overrides.begin(), named.overrides.end(),
                                     [](const std::string& key) { return key.rfind("data.", 0) == 0; });
  if (!own_data) deck.data.val_fraction = 0.0;
  const bool is_text = !own_data && !deck.data.text.empty();
  if (is_text && trained.run().tokenizer.empty() && !deck.is_set("data.tokenizer")) {
    throw Error(Failure::deck,
                trained.run().folder + ": the run has no tokenizer: give data.tokens, or data.tokenizer=FILE",
                Error::Seen::by_all_ranks);
  }
  const std::string cache = trained.run().folder + "/eval-tokens";
  const train::DataSet data = train::open_data(deck, trained.settings().model.seq, cache, trained.session().control());
  const train::SampleSource* source = own_data ? data.validation.get() : data.train.get();
  const auto& bytes_per_token = own_data ? data.validation_bytes_per_token : data.train_bytes_per_token;
  if (source == nullptr) {
    throw Error(Failure::deck, "the run kept no validation data: name some, for example 'data.text=[\"FILE\"]'",
                Error::Seen::by_all_ranks);
  }
  train::BatchLoader loader(trained.settings().batch.micro_batch, trained.settings().model.seq, trained.ledger());
  const train::Evaluator evaluator{trained.model(), trained.access(), trained.comm(), loader,
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
