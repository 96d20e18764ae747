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

/// Throws Error(deck) with a one-line text; an overlong `what` is shortened.
[[noreturn]] void refuse(const std::string& where, const std::string& what, const std::string& why);

/// The same about a key of a deck, with the key's origin and value.
[[noreturn]] void refuse_value(const Deck& deck, const std::string& key, const std::string& why);

/// The same about a key that was not given.
[[noreturn]] void refuse_missing(const Deck& deck, const std::string& key, const std::string& why);

/// The origin of a key that an override gave.
inline constexpr const char* kCommandLine = "command line";

/// The origin of a key's value; the deck's file if the key was not given.
std::string origin_of(const Deck& deck, const std::string& key);

/// "optim.lr = 1e-4", with "(default)" if the user did not give the key.
std::string beside(const Deck& deck, const std::string& key);

/// "; did you mean NAME?", or "" if no name is near.
std::string did_you_mean(const std::string& given, const std::vector<std::string>& names);

/// Whether the key has an effect beside the deck's other keys: optim.betas has none with optim.kind = "sgd".
bool is_read(const Deck& deck, const std::string& key);

/// Checks the keys against each other. Throws Error(deck) at the first key that is missing, contradicts another, or has
/// no effect beside another. If the other key is on the command line (optim.kind=sgd), a key of the file that then has
/// no effect (optim.betas) gets its default instead, and a note says so.
void check_deck(Deck& deck);

/// Parts of it: the lessons of run.curriculum one by one, each with the rest of the deck, and what data.grow needs.
void check_curriculum(const Deck& deck);
void check_growth(const Deck& deck);

}  // namespace kozero::io
