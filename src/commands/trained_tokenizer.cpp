// SPDX-FileCopyrightText: The KoZeRO authors
// SPDX-License-Identifier: Apache-2.0
// trained_tokenizer.cpp: opens the tokenizer of trained weights on every rank.
#include "src/commands/trained_tokenizer.hpp"
#include <kozero/core/error.hpp>
#include <kozero/distributed/agreement.hpp>
#include <kozero/distributed/communicator.hpp>
#include <kozero/run/start_checks.hpp>

namespace kozero::commands {

std::unique_ptr<io::Tokenizer> open_tokenizer(run::TrainedModel& trained, const program::DeckArguments& named) {
  distributed::Communicator& control = trained.session().control();
  auto tokenizer = distributed::agreed(control, [&] {
    const bool names_one = named.gives("data.tokenizer");
    if (trained.source().tokenizer.empty() && !names_one) {
      throw Error(Failure::deck,
                  "no text without a tokenizer: " + trained.source().no_tokenizer + ": give data.tokenizer=FILE");
    }
    return io::make_tokenizer(names_one ? trained.deck().data.tokenizer : trained.source().tokenizer);
  });
  run::require_same_tokenizer(*tokenizer, control);
  trained.accept_vocabulary(tokenizer->vocab_size());
  return tokenizer;
}

}  // namespace kozero::commands
