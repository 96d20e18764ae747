// SPDX-FileCopyrightText: The KoZeRO authors
// SPDX-License-Identifier: Apache-2.0
// resolved_deck.hpp: the deck that a run's folder keeps: every shape in it, so that it alone names the model.
#pragma once
#include <string>

#include <kozero/train/settings.hpp>

namespace kozero::commands {

/// The deck with the model's shape and the run's folder filled in.
io::Deck resolved_deck(io::Deck deck, const train::Settings& settings, const std::string& folder);

/// The model's shape as JSON, for the weights file.
std::string model_json(const model::Config& config);

/// The shape that such a text tells. Throws Error(input) naming `path` and what is wrong.
model::Config config_of(const std::string& model_json, const std::string& path);

}  // namespace kozero::commands
