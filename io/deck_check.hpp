// SPDX-FileCopyrightText: The KoZeRO authors
// SPDX-License-Identifier: Apache-2.0
// deck_check.hpp: what no single key can tell: keys that are missing, contradict each other or do nothing together.
#pragma once
#include <kozero/io/deck.hpp>

namespace kozero::io {

/// Throws Error(deck) at the first contradiction. Where the command line chooses (optim.kind=sgd), keys of the file
/// that the choice leaves without meaning (optim.betas) fall back to their defaults instead.
void check_deck(Deck& deck);

/// The architecture that a preset is of; "" where it is a shape for any.
std::string arch_of_preset(const std::string& preset);

}  // namespace kozero::io
