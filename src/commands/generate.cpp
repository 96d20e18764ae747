// SPDX-FileCopyrightText: The KoZeRO authors
// SPDX-License-Identifier: Apache-2.0
#include <iostream>

#include <kozero/core/error.hpp>
#include <kozero/dist/agreed.hpp>
#include <kozero/io/tokenizer.hpp>
#include <kozero/train/generator.hpp>

#include "deck_arguments.hpp"
#include "trained_model.hpp"

namespace kozero::commands {

void generate(const dist::Environment& environment, const Arguments& arguments) {
  CLI::App app("DECK | RUN | WEIGHTS [--prompt TEXT] [--tokens N] [--temperature X] [--top-k K] [--top-p P] [--seed S]",
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
    if (trained.run().tokenizer.empty()) {
      throw Error(Failure::deck, trained.run().folder + ": the run has no tokenizer: its data were no text");
    }
    return io::make_tokenizer(trained.run().tokenizer);
  });
  train::Generator generator(trained.model(), trained.access(), trained.comm(), tokenizer->vocab_size(),
                             trained.ledger());
  std::vector<Token> tokens = tokenizer->encode(prompt);
  if (tokens.empty()) tokens = tokenizer->encode("\n");
  const auto more = generator.continued(tokens, count, sampling);
  if (environment.rank() == 0) std::cout << prompt << tokenizer->decode(more) << std::endl;
}

}  // namespace kozero::commands
