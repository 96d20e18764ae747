// SPDX-FileCopyrightText: The KoZeRO authors
// SPDX-License-Identifier: Apache-2.0
// trained_tokenizer.hpp: the tokenizer of trained weights, for the commands that read or write text with them:
// generate and eval.
#pragma once
#include <memory>

#include <kozero/program/arguments.hpp>
#include <kozero/run/weights_source.hpp>
#include "io/text/tokenizer.hpp"

namespace kozero::commands {

/// The tokenizer that data.tokenizer names on the command line, else the weights' own. Collective. Throws Error(deck)
/// if there is none, if the ranks read different ones, or if it has more ids than the model; seen by all ranks.
std::unique_ptr<io::Tokenizer> open_tokenizer(run::TrainedModel& trained, const program::DeckArguments& named);

}  // namespace kozero::commands
