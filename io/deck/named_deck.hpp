// SPDX-FileCopyrightText: The KoZeRO authors
// SPDX-License-Identifier: Apache-2.0
// named_deck.hpp: the deck of a command line. A command that starts several programs for one deck (a sweep, verify with
// several numbers of threads, a run that is started again) gives them its text by the environment, so that a change of
// the file in between does not make them programs of different decks:
//   KOZERO_DECK_COPY = FILE      the deck's text is read there; messages and records have the name on the command line
//   KOZERO_DECK_HASH = DIGITS    XXH3-128 of the text: another one is refused
#pragma once
#include <string>
#include <vector>

#include "io/deck/deck.hpp"

namespace kozero::io {

inline constexpr const char* kDeckCopy = "KOZERO_DECK_COPY";
inline constexpr const char* kDeckHash = "KOZERO_DECK_HASH";

/// The bytes of a deck's file. Throws Error(deck).
std::string text_of_deck(const std::string& path);

/// The text of the deck that the command line names. Throws Error(deck) if it cannot be read or is not that of
/// kDeckHash, and Error(input) if it changed since this command read it.
std::string text_of_named_deck(const std::string& path);

/// read_deck() of this text.
Deck read_named_deck(const std::string& path, const std::vector<std::string>& overrides = {});

/// If kDeckCopy names a file that is empty or absent, writes the deck's text there. Throws Error(write).
void keep_named_deck(const std::string& path);

}  // namespace kozero::io
