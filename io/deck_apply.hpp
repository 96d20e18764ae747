// SPDX-FileCopyrightText: The KoZeRO authors
// SPDX-License-Identifier: Apache-2.0
// deck_apply.hpp: one given key into the deck.
#pragma once
#include <kozero/io/deck.hpp>
#include <kozero/io/deck_toml.hpp>

namespace kozero::io {

/// Stores the value in the member of its key's row and notes its origin. An empty section is nothing to store.
/// Throws Error(deck) where there is no such section or key, or the row does not accept the value.
void apply_given(const Given& given, Deck& deck);

}  // namespace kozero::io
