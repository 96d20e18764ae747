// SPDX-FileCopyrightText: The KoZeRO authors
// SPDX-License-Identifier: Apache-2.0
// imported_deck.hpp: the deck of an imported model: its shape from config.json, the rest plain and small.
// It names no data: whoever uses it gives data.text, or data.tokens where there is no tokenizer.
#pragma once
#include <string>

#include <kozero/model/config.hpp>

namespace kozero::exchange {

/// `has_tokenizer`: OUT/tokenizer.json is there. Throws Error(write).
void write_imported_deck(const model::Config& config, const std::string& out, bool has_tokenizer,
                         const std::string& path);

}  // namespace kozero::exchange
