// SPDX-FileCopyrightText: The KoZeRO authors
// SPDX-License-Identifier: Apache-2.0
// imported_deck.hpp: the deck of an imported model: its shape from config.json, the rest plain and small.
// It names no data: whoever uses it gives data.text, or data.tokens where there is no tokenizer.
#pragma once
#include <string>

#include <kozero/io/deck.hpp>
#include <kozero/model/config.hpp>

namespace kozero::exchange {

/// Every key of the model is set. `tokenizer`: the path of its file, or "".
io::Deck imported_deck(const model::Config& config, const std::string& run_dir, const std::string& tokenizer);

}  // namespace kozero::exchange
