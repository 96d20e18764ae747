// SPDX-FileCopyrightText: The KoZeRO authors
// SPDX-License-Identifier: Apache-2.0
#include <iostream>

#include <kozero/core/error.hpp>
#include <kozero/dist/agreed.hpp>
#include <kozero/io/tokenizer.hpp>
#include <kozero/train/generator.hpp>

#include "deck_arguments.hpp"
#include "start_checks.hpp"
#include "trained_model.hpp"

namespace kozero::commands {

void generate(const dist::Environment& environment, const Arguments& arguments) {
  CLI::App app("DECK | RUN | WEIGHTS | CHECKPOINT | HF_FOLDER [--prompt TEXT] [--tokens N] [--temperature X] "
               "[--top-k K] [--top-p P] [--seed S] [data.tokenizer=FILE]",
               "generate");
  DeckArguments named;
  named.add_to(app);
  std::string prompt = "\n";
  std::int64_t count = 200;
  train::Sampling sampling;
  app.add_option("--prompt", prompt);
  app.add_option("--tokens", count)->check(CLI::NonNegativeNumber);
  app.add_option("--temperature", sampling.temperature)->check(CLI::NonNegativeNumber);
  app.add_option("--top-k", sampling.top_k)->check(CLI::NonNegativeNumber);
  app.add_option("--top-p", sampling.top_p)->check(CLI::Range(0.0, 1.0));
  app.add_option("--seed", sampling.seed);
  parse(app, arguments);

  TrainedModel trained(named.path, named.overrides, environment);
  const auto tokenizer = dist::agreed(trained.session().control(), [&] {
    const bool names_one = named.gives("data.tokenizer");
    if (trained.source().tokenizer.empty() && !names_one) {
      throw Error(Failure::deck, "no text without a tokenizer: " + trained.source().no_tokenizer +
                                     ": give data.tokenizer=FILE");
    }
    return io::make_tokenizer(names_one ? trained.deck().data.tokenizer : trained.source().tokenizer);
  });
  require_same_tokenizer(*tokenizer, trained.session().control());
  trained.accept_vocabulary(tokenizer->vocab_size());
  train::Generator generator(trained.network(), trained.comm(), tokenizer->vocab_size(),
                             trained.ledger());
  std::vector<Token> tokens = tokenizer->encode(prompt);
  if (tokens.empty()) tokens = tokenizer->encode("\n");
  const auto more = generator.continued(tokens, count, sampling);
  if (environment.rank() == 0) std::cout << prompt << tokenizer->decode(more) << std::endl;
}

}  // namespace kozero::commands
