// SPDX-FileCopyrightText: The KoZeRO authors
// SPDX-License-Identifier: Apache-2.0
// check.hpp: checks between the keys of a deck, and the one-line error that refuses a deck.
//    WHERE: KEY = VALUE: WHY        WHERE is "file:line", "command line", or the file for a key that was not given
#pragma once
#include <string>
#include <vector>

#include <kozero/core/error.hpp>
#include "io/deck/deck.hpp"

namespace kozero::io {

/// Throws Error(deck) with a text that no line break or overlong value can leave one line.
[[noreturn]] void refuse(const std::string& where, const std::string& what, const std::string& why);

/// The same about a key of a read deck: its origin, its value.
[[noreturn]] void refuse_value(const Deck& deck, const std::string& key, const std::string& why);

/// The same about a key that is not there.
[[noreturn]] void refuse_missing(const Deck& deck, const std::string& key, const std::string& why);

/// The origin of a key that an override gave.
inline constexpr const char* kCommandLine = "command line";

/// Where a key's value came from, or the deck's file.
std::string origin_of(const Deck& deck, const std::string& key);

/// "; did you mean NAME?", or "" if no name is near.
std::string did_you_mean(const std::string& given, const std::vector<std::string>& names);

/// Checks what no single key can tell: keys that are missing, contradict each other or do nothing together. Throws
/// Error(deck) at the first contradiction. If the command line chooses (optim.kind=sgd), keys of the file
/// that the choice leaves without meaning (optim.betas) fall back to their defaults instead.
void check_deck(Deck& deck);

}  // namespace kozero::io
