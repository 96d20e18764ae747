// SPDX-FileCopyrightText: The KoZeRO authors
// SPDX-License-Identifier: Apache-2.0
// eval.cpp: the command `eval`: the loss of trained weights on text or tokens.
#include <fmt/format.h>
#include <cmath>
#include <iostream>
#include <nlohmann/json.hpp>
#include <optional>

#include <kozero/commands/commands.hpp>
#include <kozero/core/architecture.hpp>
#include <kozero/core/error.hpp>
#include <kozero/data/data_check.hpp>
#include <kozero/data/data_set.hpp>
#include <kozero/data/token_cache.hpp>
#include <kozero/distributed/agreement.hpp>
#include <kozero/distributed/communicator.hpp>
#include <kozero/program/arguments.hpp>
#include <kozero/run/evaluation_text.hpp>
#include <kozero/run/weights_source.hpp>
#include <kozero/train/evaluation.hpp>
#include "io/posix/readable.hpp"
#include "src/commands/eval_choices.hpp"

namespace kozero::commands {

using program::DeckArguments;
using program::JsonOutput;
using program::OptionParser;
using run::TrainedModel;
using run::WeightsSource;

namespace {

/// The keys that eval reads, besides the model's shape. Without train.precision it computes in f32, whatever precision
/// trained the weights.
const std::vector<std::string> kApplied = {"model.init",          "data.text",          "data.source", "data.tokens",
                                           "data.tokenizer",      "data.chat_template", "data.cache",  "comm.",
                                           "train.precision",     "train.micro_batch",  "train.seq",   "zero.stage",
                                           "zero.prefetch_units", "run.threads",        "run.device",  "run.products",
                                           "run.tuning",          "run.deterministic"};

bool gives_data(const DeckArguments& named) {
  return named.gives("data.text") || named.gives("data.source") || named.gives("data.tokens");
}

[[noreturn]] void refuse(const std::string& text) { throw Error(Failure::deck, text, Error::Seen::by_all_ranks); }

/// The deck of the evaluation. Text is read with the weights' own tokenizer, since one learned from changed text would
/// give other ids. Text given on the command line is evaluated whole, with no part for training.
io::Deck evaluated_deck(TrainedModel& trained, const DeckArguments& named) {
  const WeightsSource& source = trained.source();
  io::Deck deck = trained.deck();
  const bool own_data = !gives_data(named);
  if (own_data && source.deck.empty()) {
    refuse(source.path + ": no data come with it: give some, for example 'data.text=[\"FILE\"]'");
  }
  if (!own_data) {
    deck.data.val_fraction = 0.0;
    for (auto& each : deck.data.source) {
      each.repeat = 1;
      each.weight = 0.0;
      each.tokens = each.epochs = 0;
    }
  }
  if (named.gives("data.tokenizer")) return deck;
  if (!source.tokenizer.empty()) deck.data.tokenizer = source.tokenizer;
  if (source.tokenizer.empty()) deck.origins.erase("data.tokenizer");  // a resolved deck writes the default down
  if (source.tokenizer.empty() && !own_data && deck.data.has_text()) {
    refuse("no text without a tokenizer: " + source.no_tokenizer + ": give data.tokens, or data.tokenizer=FILE");
  }
  return deck;
}

/// A note that end-of-text tokens count in the loss; "" if the text has none.
std::string remark_on(const data::DataSet& data, const io::Deck& deck) {
  const Token separator = data.tokenizer == nullptr || !deck.data.has_text() ? -1 : data.tokenizer->end_of_text();
  if (separator < 0) return "";
  return fmt::format("note         an end-of-text token (id {}) is put before each document\n", separator);
}

/// A note that of conversations the answers alone count; "" for other data.
std::string remark_on_answers(const data::TokenShards* shards, const data::SampleSource& source, std::int64_t seq,
                              std::int64_t targets) {
  if (shards == nullptr || !shards->answers()) return "";
  const std::int64_t all = source.num_samples() * seq + source.tail();
  return fmt::format("note         only answers count: {} of {} targets\n", io::grouped_digits(targets),
                     io::grouped_digits(all));
}

/// The loss on all of `source`, and on each of several sources. A mixture's loss is the sources' mean by weight.
train::Evaluation evaluation_of(train::Evaluator& evaluator, const data::DataSet& data,
                                const data::SampleSource& source, bool own_data) {
  train::Evaluation by_source;
  if (data.sources.size() > 1) {
    by_source =
        *train::evaluate_sources(evaluator, data, own_data ? train::Side::validation : train::Side::training, 0);
  }
  if (data.is_mixture() && !by_source.sources.empty()) return by_source;
  train::Evaluation whole = train::evaluate(evaluator, source, 0);
  whole.sources = std::move(by_source.sources);
  return whole;
}

}  // namespace

void eval(const distributed::Environment& environment, const Arguments& arguments) {
  OptionParser parser("eval");
  DeckArguments named;
  named.add_to(parser, kApplied);
  std::string adapter;
  program::add_adapter_option(parser, adapter);
  std::optional<std::string> choices;
  parser
      .add("--choices", choices,
           "JSON lines of multiple-choice items instead of text: \"context\" (or \"ctx\"), \"endings\" and "
           "\"label\"; accuracy by log-likelihood, and by that per character (acc_norm)")
      .type_name("FILE");
  JsonOutput json;
  json.add_to(parser);
  parser.parse(arguments);
  named.require_applied("eval", kApplied);

  const bool own_data = !gives_data(named);
  if (choices && !own_data) refuse("eval: --choices excludes data.text, data.source and data.tokens");
  if (choices && named.gives("train.micro_batch"))
    refuse("eval: --choices scores one ending at a time; leave train.micro_batch out");
  std::vector<std::string> overrides = named.overrides;
  if (choices) overrides.emplace_back("train.micro_batch=1");  // endings are scored one at a time
  TrainedModel trained(named.path, overrides, environment, train::Use::evaluation, adapter);
  if (choices) return eval_choices(trained, named, *choices, json);
  io::Deck deck = evaluated_deck(trained, named);
  distributed::Communicator& control = trained.session().control();
  // Not beside the weights, whose folder may be read-only.
  if (!named.gives("data.cache")) deck.data.cache = distributed::from_first_rank(control, data::user_token_cache);
  const data::DataSet data = data::open_data(deck, trained.settings().step.seq, control);
  if (architecture(deck.model.arch).decoder) trained.accept_vocabulary(data.vocab);
  const data::SampleSource* source = own_data ? data.validation.get() : data.train.get();
  const auto& bytes_per_token = own_data ? data.validation_bytes_per_token : data.train_bytes_per_token;
  if (source == nullptr) {
    throw Error(Failure::deck, "the run kept no validation data: name some, for example 'data.text=[\"FILE\"]'",
                Error::Seen::by_all_ranks);
  }
  const auto& shards = own_data ? data.validation_shards : data.train_shards;
  data::DataCheck({shards}, control).finish(control);
  const train::Evaluation result = evaluation_of(trained.evaluator(), data, *source, own_data);
  const std::string bad = train::text_of_non_finite(result, "the loss");
  if (!bad.empty()) {
    throw Error(
        Failure::non_finite,
        trained.source().path + ": " + bad +
            ", though every weight is finite: numbers computed from the weights overflow; f32 (train.precision) "
            "has the widest range",
        Error::Seen::by_all_ranks);
  }
  if (environment.rank() != 0) return;
  std::cout << run::evaluation_line(result.loss, bytes_per_token, own_data ? "validation" : "given data") << ", "
            << result.targets << " tokens\n";
  for (const auto& each : result.sources) std::cout << "  " << run::source_line(each) << "\n";
  std::cout << remark_on_answers(shards.get(), *source, trained.settings().step.seq, result.targets)
            << remark_on(data, deck) << std::flush;
  nlohmann::ordered_json object = {{"data", own_data ? "validation" : "given"},
                                   {"loss", result.loss},
                                   {"perplexity", std::exp(result.loss)},
                                   {"bits_per_byte", nullptr},
                                   {"tokens", result.targets}};
  if (bytes_per_token) object["bits_per_byte"] = run::bits_per_byte(result.loss, *bytes_per_token);
  for (const auto& each : result.sources) {
    object["sources"][each.name] = {
        {"loss", each.loss}, {"perplexity", std::exp(each.loss)}, {"bits_per_byte", nullptr}, {"tokens", each.tokens}};
    if (each.bytes_per_token)
      object["sources"][each.name]["bits_per_byte"] = run::bits_per_byte(each.loss, *each.bytes_per_token);
  }
  json.print(object);
}

}  // namespace kozero::commands
