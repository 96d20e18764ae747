// SPDX-FileCopyrightText: The KoZeRO authors
// SPDX-License-Identifier: Apache-2.0
// initial_model.hpp: the model and weights with which a run starts (model.init), and the resolved deck in its folder.
//   random   drawn from run.seed        PATH   fine-tuning: trained weights, a fresh optimizer, step 0
// The resolved deck holds every shape, so it alone names the model.
#pragma once
#include <string>

#include <kozero/train/settings.hpp>
#include "io/deck/deck.hpp"

namespace kozero::commands {

// Model.init: the model and the weights that a run begins with.
//   random   drawn from run.seed
//   PATH     fine-tuning: weights_source.hpp's weights, a fresh optimizer, step 0, the deck's own data
// Keys of the model that the deck leaves out, and data.tokenizer, come from PATH; those it gives must agree, but for
// model.seq under rotary positions, of which no weight depends, and model.dropout.

/// The deck with what PATH says filled in. Throws Error(deck) naming each key that disagrees, and where the tokenizer
/// has more ids than the model; Error(input) where PATH cannot be read; seen by all ranks. Collective.
io::Deck with_initial_model(io::Deck deck, dist::Communicator& comm);

/// Fills and publishes the weights of step 0; returns a line for the log, "" where they are random. Collective.
std::string begin_weights(const io::Deck& deck, train::Engine& engine, dist::Communicator& control);

}  // namespace kozero::commands
